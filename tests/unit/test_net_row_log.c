/* core/net/row_log and core/net/row_file on a real file system: flushing, rotation, files that are
 * renamed or deleted under it, and disks that are full (case B57). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net_fixture.h"
#include "rng.h"
#include "row_log.h"

struct world {
    struct net_fixture net;
    struct kvr_row_log log;
    char directory[64];
    char path[128];
    int closed;
    uint64_t next; /* number of the next row */
};

static void begin(struct world *world)
{
    memset(world, 0, sizeof *world);
    net_fixture_init(&world->net);
    snprintf(world->directory, sizeof world->directory, "/tmp/kvr-rows-XXXXXX");
    assert_non_null(mkdtemp(world->directory));
    snprintf(world->path, sizeof world->path, "%s/rows.jsonl", world->directory);
}

static void open_log(struct world *world, struct kvr_row_log_options options)
{
    struct kvr_error error = {0};
    if (!options.path)
        options.path = world->path;
    if (kvr_row_log_open(&world->log, &world->net.loop, &options, &error))
        fail_msg("%s", error.text);
}

static void on_closed(void *context)
{
    ((struct world *)context)->closed = 1;
}

static void close_log(struct world *world)
{
    kvr_row_log_close(&world->log, world, on_closed);
    assert_true(net_run_until(&world->net, &world->closed, 1, 5000));
}

static void end(struct world *world)
{
    char path[512];
    DIR *directory = opendir(world->directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        snprintf(path, sizeof path, "%s/%s", world->directory, entry->d_name);
        if (entry->d_name[0] != '.')
            assert_int_equal(remove(path), 0);
    }
    closedir(directory);
    assert_int_equal(rmdir(world->directory), 0);
    net_fixture_deinit(&world->net);
}

/* Rows carry their number and a filling that hangs on it. */
static size_t make_row(char *out, size_t size, uint64_t number)
{
    int len = snprintf(out, size, "{\"row\":%llu,\"x\":\"", (unsigned long long)number);
    for (uint64_t i = 0; i < kvr_mix64(number) % 300; i++)
        out[len++] = (char)('a' + (number + i) % 26);
    memcpy(out + len, "\"}\n", 4);
    return (size_t)len + 3;
}

static void append_rows(struct world *world, int count)
{
    char row[512];
    for (int i = 0; i < count; i++)
        kvr_row_log_append(&world->log,
                           kvr_slice_make(row, make_row(row, sizeof row, world->next++)));
}

/* Every line of the file must be a row, whole; marks them in `seen` and returns their number. */
static uint64_t check_file(const char *path, uint8_t *seen, uint64_t rows)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    char line[1024], wanted[512];
    uint64_t count = 0;
    while (fgets(line, sizeof line, file)) {
        unsigned long long number = UINT64_MAX;
        assert_int_equal(sscanf(line, "{\"row\":%llu", &number), 1);
        assert_true(number < rows);
        make_row(wanted, sizeof wanted, number);
        assert_string_equal(line, wanted);
        assert_int_equal(seen[number], 0);
        seen[number] = 1;
        count++;
    }
    fclose(file);
    return count;
}

/* All files of the directory together. */
static uint64_t check_files(const struct world *world, uint8_t *seen)
{
    char path[512];
    uint64_t count = 0;
    DIR *directory = opendir(world->directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        snprintf(path, sizeof path, "%s/%s", world->directory, entry->d_name);
        if (entry->d_name[0] != '.')
            count += check_file(path, seen, world->next);
    }
    closedir(directory);
    return count;
}

static uint64_t count_rows(const char *path)
{
    uint8_t *seen = calloc(1, 1 << 20);
    uint64_t count = check_file(path, seen, 1 << 20);
    free(seen);
    return count;
}

static uint64_t count_all_rows(const struct world *world)
{
    uint8_t *seen = calloc(1, world->next + 1);
    uint64_t count = check_files(world, seen);
    free(seen);
    return count;
}

/* Until the log has nothing left to write; a busy machine may take longer than the flush time. */
static void settle(struct world *world)
{
    uint64_t deadline = world->net.ran_ns + 5000000000u;
    while ((world->log.waiting.len || world->log.working) && world->net.ran_ns < deadline)
        net_run_for(&world->net, 5);
}

static void rows_are_on_disk_in_time(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    open_log(&world, (struct kvr_row_log_options){0});
    append_rows(&world, 3);
    assert_int_equal(count_rows(world.path), 0); /* not by the loop itself */
    settle(&world);
    assert_int_equal(count_rows(world.path), 3);
    /* A full buffer does not wait for the time. */
    append_rows(&world, 2400);
    net_run_for(&world.net, 150);
    assert_true(count_rows(world.path) >= 1200);
    settle(&world);
    assert_int_equal(count_rows(world.path), 2403);
    assert_int_equal(world.log.counters.rows, 2403);
    struct stat status;
    stat(world.path, &status);
    assert_int_equal(world.log.counters.bytes, status.st_size);
    close_log(&world);
    end(&world);
}

static void closing_writes_everything(void **state)
{
    (void)state;
    for (int ms = -1; ms <= 2; ms++) {
        struct world world;
        begin(&world);
        open_log(&world, (struct kvr_row_log_options){0});
        append_rows(&world, 5000); /* the first job runs by now */
        if (ms >= 0)
            net_run_for(&world.net, (unsigned)ms);
        append_rows(&world, 100);
        int before = net_open_descriptors();
        close_log(&world);
        assert_int_equal(net_open_descriptors(), before - 1);
        assert_int_equal(count_rows(world.path), 5100);
        assert_int_equal(world.log.counters.rows, 5100);
        end(&world);
    }
    struct world world;
    begin(&world);
    open_log(&world, (struct kvr_row_log_options){0});
    close_log(&world);
    end(&world);
}

static void rotates_by_size(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    open_log(&world, (struct kvr_row_log_options){.rotate_bytes = 20000, .keep = 3});
    for (int i = 0; i < 60; i++) {
        append_rows(&world, 50);
        net_run_for(&world.net, i % 10 ? 1 : 210);
    }
    close_log(&world);
    assert_int_equal(world.log.counters.rows, 3000);
    assert_int_equal(world.log.counters.rows + world.log.counters.dropped_full, world.next);
    assert_true(world.log.counters.rotations >= 20);
    char path[192];
    uint8_t *seen = calloc(1, world.next);
    for (int i = 0; i <= 3; i++) {
        snprintf(path, sizeof path, i ? "%s.%d" : "%s", world.path, i);
        struct stat status;
        assert_int_equal(stat(path, &status), 0);
        assert_true(status.st_size <= 20000);
        assert_true(i == 0 || status.st_size > 19000);
        assert_true(check_file(path, seen, world.next) > 0);
    }
    snprintf(path, sizeof path, "%s.4", world.path);
    assert_int_equal(access(path, F_OK), -1);
    /* What is kept is the end, without a hole. */
    uint64_t first = 0;
    while (!seen[first])
        first++;
    for (uint64_t i = first; i < world.next; i++)
        assert_int_equal(seen[i], 1);
    free(seen);
    end(&world);
}

static void a_row_longer_than_a_file_has_one_of_its_own(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    open_log(&world, (struct kvr_row_log_options){.rotate_bytes = 10, .keep = 20});
    append_rows(&world, 10);
    close_log(&world);
    assert_int_equal(world.log.counters.rotations, 9);
    assert_int_equal(count_rows(world.path), 1);
    assert_int_equal(count_all_rows(&world), 10);
    end(&world);
}

static void renamed_and_signalled(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    open_log(&world, (struct kvr_row_log_options){0});
    append_rows(&world, 100);
    settle(&world);
    char moved[192];
    snprintf(moved, sizeof moved, "%s.old", world.path);
    append_rows(&world, 10); /* still in the buffer */
    assert_int_equal(rename(world.path, moved), 0);
    kvr_row_log_reopen(&world.log);
    net_run_for(&world.net, 100);
    assert_int_equal(access(world.path, F_OK), 0);
    append_rows(&world, 10);
    settle(&world);
    assert_int_equal(count_rows(moved), 100);
    assert_int_equal(count_rows(world.path), 20);
    assert_int_equal(world.log.counters.reopens, 1);
    /* Without a signal the next flush sees it; deleted counts as well. */
    assert_int_equal(unlink(world.path), 0);
    append_rows(&world, 5);
    settle(&world);
    assert_int_equal(count_rows(world.path), 5);
    assert_int_equal(world.log.counters.reopens, 2);
    /* Somebody else has made the new one, with something in it. */
    snprintf(moved, sizeof moved, "%s.old2", world.path);
    assert_int_equal(rename(world.path, moved), 0);
    FILE *other = fopen(world.path, "w");
    char row[512];
    make_row(row, sizeof row, world.next++);
    fputs(row, other);
    fclose(other);
    append_rows(&world, 5);
    settle(&world);
    assert_int_equal(count_rows(world.path), 6);
    close_log(&world);
    end(&world);
}

static void a_hundred_signals_under_load(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    open_log(&world, (struct kvr_row_log_options){0});
    char moved[192];
    int moves = 0;
    for (int i = 0; i < 100; i++) {
        append_rows(&world, 100);
        snprintf(moved, sizeof moved, "%s.%d", world.path, 1000 + i);
        moves += rename(world.path, moved) == 0;
        kvr_row_log_reopen(&world.log);
        net_run_for(&world.net, 8);
    }
    close_log(&world);
    assert_true(moves > 50);
    assert_int_equal(count_all_rows(&world), 10000);
    assert_int_equal(world.log.counters.rows, 10000);
    assert_int_equal(world.log.counters.reopen_failures, 0);
    end(&world);
}

static void keeps_the_old_handle_when_no_new_file_can_be_made(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    char parent[96], path[128], away[128], file[160];
    snprintf(parent, sizeof parent, "%s/d", world.directory);
    snprintf(path, sizeof path, "%s/rows", parent);
    snprintf(away, sizeof away, "%s/away", world.directory);
    snprintf(file, sizeof file, "%s/rows", away);
    assert_int_equal(mkdir(parent, 0700), 0);
    open_log(&world, (struct kvr_row_log_options){.path = path});
    append_rows(&world, 10);
    settle(&world);
    /* The directory's name is a plain file now: permissions would not bind root. */
    assert_int_equal(rename(parent, away), 0);
    assert_int_equal(mknod(parent, S_IFREG | 0600, 0), 0);
    append_rows(&world, 10);
    kvr_row_log_reopen(&world.log);
    net_run_for(&world.net, 100);
    assert_int_equal(world.log.counters.reopen_failures, 1);
    assert_int_equal(count_rows(file), 20); /* nothing was lost */
    assert_int_equal(world.log.counters.dropped_failed, 0);
    append_rows(&world, 10);
    settle(&world);
    assert_int_equal(count_rows(file), 30);
    assert_int_equal(world.log.counters.reopen_failures, 2);
    /* And back. */
    assert_int_equal(unlink(parent), 0);
    assert_int_equal(mkdir(parent, 0700), 0);
    append_rows(&world, 10);
    settle(&world);
    assert_int_equal(count_rows(path), 10);
    assert_int_equal(world.log.counters.reopens, 1);
    close_log(&world);
    remove(path);
    remove(file);
    rmdir(parent);
    rmdir(away);
    end(&world);
}

static void rotation_that_fails_loses_nothing(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    char target[192];
    snprintf(target, sizeof target, "%s.1", world.path);
    assert_int_equal(mkdir(target, 0700), 0); /* a file cannot be renamed over it */
    open_log(&world, (struct kvr_row_log_options){.rotate_bytes = 5000, .keep = 1});
    for (int i = 0; i < 5; i++) {
        append_rows(&world, 50);
        settle(&world);
    }
    assert_int_equal(world.log.counters.rotations, 0);
    assert_true(world.log.counters.reopen_failures >= 4);
    assert_int_equal(count_rows(world.path), 250);
    assert_int_equal(rmdir(target), 0);
    append_rows(&world, 50);
    close_log(&world);
    assert_true(world.log.counters.rotations >= 1);
    assert_int_equal(world.log.counters.rows, 300);
    end(&world);
}

static void want_of_descriptors_loses_nothing(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    open_log(&world, (struct kvr_row_log_options){0});
    append_rows(&world, 10);
    settle(&world);
    char moved[192];
    snprintf(moved, sizeof moved, "%s.old", world.path);
    assert_int_equal(rename(world.path, moved), 0);
    struct rlimit before;
    getrlimit(RLIMIT_NOFILE, &before);
    struct rlimit none = {0, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    append_rows(&world, 10);
    settle(&world);
    setrlimit(RLIMIT_NOFILE, &before);
    assert_int_equal(world.log.counters.reopen_failures, 1);
    assert_int_equal(count_rows(moved), 20);
    append_rows(&world, 10);
    close_log(&world);
    assert_int_equal(count_rows(world.path), 10);
    end(&world);
}

static void device_that_is_always_full(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    open_log(&world, (struct kvr_row_log_options){.path = "/dev/full"});
    append_rows(&world, 1000);
    settle(&world);
    assert_int_equal(world.log.counters.rows, 0);
    assert_int_equal(world.log.counters.dropped_failed, 1000);
    append_rows(&world, 10);
    close_log(&world);
    assert_int_equal(world.log.counters.dropped_failed, 1010);
    end(&world);
}

/* A limit that cuts a write in the middle of a row, as a disk that fills up does. */
static void short_writes_leave_whole_rows(void **state)
{
    (void)state;
    struct rlimit before;
    getrlimit(RLIMIT_FSIZE, &before);
    for (rlim_t limit = 0; limit < 60000; limit += 7001) {
        struct world world;
        begin(&world);
        open_log(&world, (struct kvr_row_log_options){.flush_bytes = 8000});
        struct rlimit small = {limit, before.rlim_max};
        setrlimit(RLIMIT_FSIZE, &small);
        for (int i = 0; i < 10; i++) {
            append_rows(&world, 50);
            net_run_for(&world.net, 5);
        }
        settle(&world);
        uint64_t written = world.log.counters.rows;
        assert_int_equal(count_rows(world.path), written);
        assert_int_equal(written + world.log.counters.dropped_failed, world.next);
        assert_true(world.log.counters.dropped_failed > 0);
        struct stat status;
        stat(world.path, &status);
        assert_true(limit - (rlim_t)status.st_size < 400); /* room for no other row */
        setrlimit(RLIMIT_FSIZE, &before);
        append_rows(&world, 50);
        close_log(&world);
        assert_int_equal(count_rows(world.path), written + 50);
        end(&world);
    }
}

static bool may_mount;

/* Before any thread is there: a mount name space of our own, so that nothing is left mounted
 * whatever happens. */
static void isolate(void)
{
    may_mount = unshare(CLONE_NEWNS) == 0 && mount("none", "/", "", MS_REC | MS_PRIVATE, "") == 0;
}

static void disk_that_fills_up_and_empties(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    if (!may_mount || mount("none", world.directory, "tmpfs", 0, "size=64k") != 0) {
        end(&world);
        skip(); /* needs the right to mount; RLIMIT_FSIZE above does without */
    }
    char filler[128];
    snprintf(filler, sizeof filler, "%s/filler", world.directory);
    open_log(&world, (struct kvr_row_log_options){.flush_bytes = 8000});
    append_rows(&world, 20);
    settle(&world);
    int fd = open(filler, O_WRONLY | O_CREAT, 0600);
    char zeros[4096] = {0};
    while (write(fd, zeros, sizeof zeros) > 0)
        ;
    close(fd);
    for (int i = 0; i < 10; i++) {
        append_rows(&world, 100);
        net_run_for(&world.net, 10);
    }
    settle(&world);
    assert_true(world.log.counters.dropped_failed > 900);
    uint64_t written = world.log.counters.rows;
    assert_int_equal(written + world.log.counters.dropped_failed, world.next);
    assert_int_equal(count_rows(world.path), written);
    unlink(filler);
    append_rows(&world, 50);
    close_log(&world);
    assert_int_equal(count_rows(world.path), written + 50);
    assert_int_equal(umount(world.directory), 0);
    end(&world);
}

static void buffer_is_bounded(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    open_log(&world, (struct kvr_row_log_options){.buffer_bytes = 20000});
    append_rows(&world, 1000); /* the loop does not run: one job takes what it can, then no more */
    assert_true(world.log.waiting.len <= 20000);
    assert_true(world.log.counters.dropped_full > 500);
    close_log(&world);
    assert_int_equal(world.log.counters.rows + world.log.counters.dropped_full, 1000);
    assert_int_equal(count_rows(world.path), world.log.counters.rows);
    end(&world);
}

static void a_burst_gives_its_memory_back(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    open_log(&world, (struct kvr_row_log_options){0});
    append_rows(&world, 20000);
    net_run_for(&world.net, 500);
    append_rows(&world, 10);
    settle(&world);
    assert_int_equal(world.log.counters.rows, 20010);
    assert_true(world.log.waiting.capacity + world.log.writing.capacity <= 524288);
    close_log(&world);
    end(&world);
}

static void a_file_that_ends_in_a_row_goes_on_with_a_new_line(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    FILE *file = fopen(world.path, "w");
    fputs("{\"row\":0,\"x\":\"cut by a cra", file);
    fclose(file);
    open_log(&world, (struct kvr_row_log_options){0});
    append_rows(&world, 2);
    close_log(&world);
    file = fopen(world.path, "r");
    char line[1024], wanted[512];
    assert_non_null(fgets(line, sizeof line, file));
    assert_string_equal(line, "{\"row\":0,\"x\":\"cut by a cra\n");
    for (uint64_t i = 0; i < 2; i++) {
        make_row(wanted, sizeof wanted, i);
        assert_non_null(fgets(line, sizeof line, file));
        assert_string_equal(line, wanted);
    }
    fclose(file);
    end(&world);
}

static void links_and_pipes_are_written_but_not_rotated(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    char link_path[192], pipe_path[192];
    snprintf(link_path, sizeof link_path, "%s/link", world.directory);
    snprintf(pipe_path, sizeof pipe_path, "%s/pipe", world.directory);
    assert_int_equal(symlink(world.path, link_path), 0);
    open_log(&world, (struct kvr_row_log_options){.path = link_path, .rotate_bytes = 1000});
    append_rows(&world, 100);
    close_log(&world);
    assert_int_equal(world.log.counters.rotations, 0);
    assert_int_equal(count_rows(world.path), 100);
    unlink(link_path);

    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    struct kvr_row_log_options options = {.path = pipe_path, .rotate_bytes = 1000};
    struct kvr_error error = {0};
    assert_int_equal(kvr_row_log_open(&world.log, &world.net.loop, &options, &error), KVR_E_IO);
    assert_non_null(strstr(error.text, pipe_path));
    int reader = open(pipe_path, O_RDONLY | O_NONBLOCK);
    world.closed = 0;
    world.next = 0;
    open_log(&world, options);
    append_rows(&world, 1000); /* more than the pipe holds and nobody takes */
    settle(&world);
    assert_true(world.log.counters.dropped_failed > 0);
    close_log(&world);
    assert_int_equal(world.log.counters.rows + world.log.counters.dropped_failed, 1000);
    close(reader);
    end(&world);
}

static void start_without_a_directory_fails(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    char path[192];
    snprintf(path, sizeof path, "%s/none/rows.jsonl", world.directory);
    struct kvr_row_log_options options = {.path = path};
    struct kvr_error error = {0};
    assert_int_equal(kvr_row_log_open(&world.log, &world.net.loop, &options, &error), KVR_E_IO);
    assert_non_null(strstr(error.text, "none/rows.jsonl"));
    end(&world);
}

int main(void)
{
    isolate();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_on_disk_in_time),
        cmocka_unit_test(closing_writes_everything),
        cmocka_unit_test(rotates_by_size),
        cmocka_unit_test(a_row_longer_than_a_file_has_one_of_its_own),
        cmocka_unit_test(renamed_and_signalled),
        cmocka_unit_test(a_hundred_signals_under_load),
        cmocka_unit_test(keeps_the_old_handle_when_no_new_file_can_be_made),
        cmocka_unit_test(rotation_that_fails_loses_nothing),
        cmocka_unit_test(want_of_descriptors_loses_nothing),
        cmocka_unit_test(device_that_is_always_full),
        cmocka_unit_test(short_writes_leave_whole_rows),
        cmocka_unit_test(disk_that_fills_up_and_empties),
        cmocka_unit_test(buffer_is_bounded),
        cmocka_unit_test(a_burst_gives_its_memory_back),
        cmocka_unit_test(a_file_that_ends_in_a_row_goes_on_with_a_new_line),
        cmocka_unit_test(links_and_pipes_are_written_but_not_rotated),
        cmocka_unit_test(start_without_a_directory_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
