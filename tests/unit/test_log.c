/* The process's own log: whatever a message repeats, it is one line. */
#include "unit.h"

#include <unistd.h>

#include "log.h"

static void test_a_message_is_one_line(void **state)
{
    (void)state;
    char line[128], more[8];
    FILE *file = tmpfile();
    int before = dup(STDERR_FILENO);
    assert_true(file && before >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    kvr_log(KVR_LOG_WARN, "plan: %s", "a\r\n2026 info \x1b[2J\x7f b\t\xc3\xa9");
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    close(before);
    rewind(file);
    assert_non_null(fgets(line, sizeof line, file));
    assert_null(fgets(more, sizeof more, file));
    fclose(file);
    assert_string_equal(strchr(line, ' '), " warn plan: a??2026 info ?[2J? b?\xc3\xa9\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_message_is_one_line)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
