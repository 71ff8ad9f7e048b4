/* Shows files to a fuzz target, without libFuzzer: `replay_NAME PATH ...`, each a file or a folder
 * of files. A finding ends the process as it would end the fuzzer; the file's name is printed. */
#include "fuzz.h"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

static char current[4096]; /* the file being shown */

/* A sanitizer's way to say that it is about to end the process; absent without one. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void say_current(void)
{
    static const char words[] = "replay: failed on ";
    ssize_t ignored = write(STDERR_FILENO, words, sizeof words - 1);
    ignored = write(STDERR_FILENO, current, strlen(current));
    ignored = write(STDERR_FILENO, "\n", 1);
    (void)ignored;
}

static void on_abort(int number)
{
    say_current();
    signal(number, SIG_DFL);
    raise(number);
}

static int show_file(const char *path)
{
    FILE *file = fopen(path, "rbe");
    if (!file) {
        perror(path);
        return -1;
    }
    snprintf(current, sizeof current, "%s", path);
    struct kvr_buffer bytes = {0};
    size_t len;
    do {
        len = fread(kvr_buffer_reserve(&bytes, 65536), 1, 65536, file);
        bytes.len += len;
    } while (len);
    fclose(file);
    LLVMFuzzerTestOneInput((const uint8_t *)bytes.data, bytes.len);
    kvr_buffer_deinit(&bytes);
    return 1;
}

/* How many files were shown; negative when one could not be read. */
static int show(const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return 0; /* a target without regressions has no folder of them */
    if (!S_ISDIR(status.st_mode))
        return show_file(path);
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, alphasort);
    int shown = 0;
    for (int i = 0; i < count; i++) {
        char inside[4096];
        bool hidden = entries[i]->d_name[0] == '.';
        int len = snprintf(inside, sizeof inside, "%s/%s", path, entries[i]->d_name);
        free(entries[i]);
        bool skip = hidden || shown < 0 || len < 0 || (size_t)len >= sizeof inside;
        int rc = skip ? 0 : show_file(inside);
        shown = rc < 0 ? rc : shown + rc;
    }
    if (count >= 0)
        free(entries);
    return shown;
}

int main(int argc, char **argv)
{
    int shown = 0;
    signal(SIGABRT, on_abort);
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(say_current);
    for (int i = 1; i < argc; i++) {
        int rc = show(argv[i]);
        if (rc < 0)
            return 1;
        shown += rc;
    }
    printf("replay: %d inputs\n", shown);
    if (shown == 0)
        fprintf(stderr, "replay: nothing was shown\n");
    return shown ? 0 : 1;
}
