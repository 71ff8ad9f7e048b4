/* Files that traffic waits for: regular ones open, all else is refused at once. */
#include <sys/stat.h>

#include "unit.h"

#include "file.h"

static void only_regular_files_open(void **state)
{
    (void)state;
    char directory[] = "/tmp/kvr-file-XXXXXX", path[64];
    assert_non_null(mkdtemp(directory));
    struct kvr_error error;
    FILE *file = NULL;
    alarm(10); /* it must not wait */

    assert_int_equal(kvr_file_open(directory, &file, &error), KVR_E_IO);
    assert_string_equal(error.text + sizeof "cannot read " - 1 + sizeof directory - 1,
                        ": it is a directory");

    snprintf(path, sizeof path, "%s/x", directory);
    assert_int_equal(kvr_file_open(path, &file, &error), KVR_E_NOT_FOUND);

    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(kvr_file_open(path, &file, &error), KVR_E_IO);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(kvr_file_open("/dev/zero", &file, &error), KVR_E_IO);
    assert_null(file);

    FILE *made = fopen(path, "w");
    fputs("text", made);
    fclose(made);
    assert_int_equal(kvr_file_open(path, &file, &error), 0);
    char text[8] = "";
    assert_int_equal(fread(text, 1, sizeof text - 1, file), 4);
    assert_string_equal(text, "text");
    fclose(file);
    unlink(path);
    rmdir(directory);
    alarm(0);
}

/* A command may be given a pipe: one whose writer comes later, or is slow, or is gone already. */
static void pipes_open_for_a_command(void **state)
{
    (void)state;
    static const struct {
        unsigned before_ms, between_ms; /* it is opened, and written to */
        const char *text;
    } writers[] = {{0, 0, "text"}, {100, 0, "text"}, {0, 100, "text"}, {0, 0, ""}};
    char directory[] = "/tmp/kvr-file-XXXXXX", path[64];
    struct kvr_error error = {0};
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/pipe", directory);
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(60);
    for (size_t i = 0; i < sizeof writers / sizeof writers[0]; i++) {
        struct kvr_buffer text = {0};
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            usleep(writers[i].before_ms * 1000);
            FILE *out = fopen(path, "w");
            usleep(writers[i].between_ms * 1000);
            fputs(writers[i].text, out);
            _exit(fclose(out) != 0);
        }
        int rc = kvr_file_read_given(path, 100, &text, &error);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_int_equal(rc, 0);
        assert_int_equal(text.len, strlen(writers[i].text));
        assert_memory_equal(text.data, writers[i].text, text.len);
        kvr_buffer_deinit(&text);
    }
    FILE *file = NULL;
    assert_int_equal(kvr_file_open_given(path, &file, &error), KVR_E_IO);
    assert_non_null(strstr(error.text, "it is a pipe that nobody writes to"));
    assert_int_equal(kvr_file_open_given("/dev/zero", &file, &error), KVR_E_IO);
    assert_string_equal(error.text, "cannot read /dev/zero: it is a device");
    assert_null(file);
    alarm(0);
    unlink(path);
    rmdir(directory);
}

static void what_is_read_whole_has_a_most(void **state)
{
    (void)state;
    char path[] = "/tmp/kvr-file-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "12345678", 8) == 8);
    close(fd);
    for (size_t most = 7; most <= 8; most++) {
        struct kvr_buffer text = {0};
        struct kvr_error error = {0};
        kvr_buffer_append_text(&text, "before ");
        assert_int_equal(kvr_file_read(path, most, &text, &error), most == 8 ? 0 : KVR_E_LIMIT);
        if (most == 8)
            assert_memory_equal(text.data, "before 12345678", 15);
        else
            assert_non_null(strstr(error.text, " is over 7 bytes"));
        kvr_buffer_deinit(&text);
    }
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_regular_files_open),
                                       cmocka_unit_test(pipes_open_for_a_command),
                                       cmocka_unit_test(what_is_read_whole_has_a_most)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
