/* Files that traffic waits for: regular ones open, all else is refused at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_regular_files_open)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
