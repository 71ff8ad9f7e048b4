/* core/net/reloader on a real file system: every way in which editors and deployments change a
 * file, and how soon it is seen (a save must be in force within 200 ms). */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net_fixture.h"
#include "reloader.h"

#define MS ((uint64_t)1000000)

struct world {
    struct net_fixture net;
    struct kvr_reloader reloader;
    char root[64];
    char directory[96];
    char path[160]; /* of the file that most tests watch */
    int reports;
    int closed;
    char last[192];    /* path reported last */
    char content[256]; /* of it, when reported; "" when it was not there */
    void (*on_report)(struct world *world, const char *path);
};

static void on_changed(void *context, const char *path)
{
    struct world *world = context;
    world->reports++;
    snprintf(world->last, sizeof world->last, "%s", path);
    memset(world->content, 0, sizeof world->content);
    int fd = open(path, O_RDONLY);
    if (fd >= 0) {
        assert_true(read(fd, world->content, sizeof world->content - 1) >= 0);
        close(fd);
    }
    if (world->on_report)
        world->on_report(world, path);
    assert_string_equal(world->last, path); /* it lives until the callback returns */
}

static void on_closed(void *context)
{
    ((struct world *)context)->closed = 1;
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void rename_over(const char *path, const char *text)
{
    char temporary[192];
    snprintf(temporary, sizeof temporary, "%s.swp", path);
    write_file(temporary, text);
    assert_int_equal(rename(temporary, path), 0);
}

static void begin(struct world *world, const struct kvr_reloader_options *options)
{
    memset(world, 0, sizeof *world);
    net_fixture_init(&world->net);
    snprintf(world->root, sizeof world->root, "/tmp/kvr-reload-XXXXXX");
    assert_non_null(mkdtemp(world->root));
    snprintf(world->directory, sizeof world->directory, "%s/policies", world->root);
    assert_int_equal(mkdir(world->directory, 0700), 0);
    snprintf(world->path, sizeof world->path, "%s/p.lua", world->directory);
    write_file(world->path, "old");
    kvr_reloader_init(&world->reloader, &world->net.loop, options, world, on_changed);
}

static void add(struct world *world, const char *path)
{
    struct kvr_error error = {0};
    if (kvr_reloader_add(&world->reloader, path, &error))
        fail_msg("%s", error.text);
}

static void end(struct world *world)
{
    if (!world->reloader.closing)
        kvr_reloader_close(&world->reloader, world, on_closed);
    assert_true(net_run_until(&world->net, &world->closed, 1, 1000));
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", world->root);
    assert_int_equal(system(command), 0);
    net_fixture_deinit(&world->net);
}

/* A report must come within `ms` that finds this content. */
static void expect(struct world *world, const char *content, unsigned ms)
{
    uint64_t deadline = world->net.ran_ns + ms * MS;
    for (uint64_t at_ns = uv_hrtime(); strcmp(world->content, content) || !world->reports;) {
        if (world->net.ran_ns > deadline)
            fail_msg("\"%s\" was not seen within %u ms; seen \"%s\", %d reports", content, ms,
                     world->content, world->reports);
        net_turn(&world->net, &at_ns);
    }
}

static void saves_of_all_kinds_are_seen_in_time(void **state)
{
    (void)state;
    struct world world;
    begin(&world, NULL);
    add(&world, world.path);
    net_run_for(&world.net, 100);
    assert_int_equal(world.reports, 0);
    char text[32], backup[192];
    snprintf(backup, sizeof backup, "%s~", world.path);
    for (int i = 0; i < 10; i++) {
        snprintf(text, sizeof text, "renamed %d", i);
        rename_over(world.path, text);
        expect(&world, text, 100);
        snprintf(text, sizeof text, "in place %d", i);
        write_file(world.path, text);
        expect(&world, text, 100);
        /* The file is moved to a backup and written anew. */
        snprintf(text, sizeof text, "backed up %d", i);
        assert_int_equal(rename(world.path, backup), 0);
        write_file(world.path, text);
        unlink(backup);
        expect(&world, text, 100);
        snprintf(text, sizeof text, "again %d", i);
        unlink(world.path);
        write_file(world.path, text);
        expect(&world, text, 100);
    }
    assert_in_range(world.reports, 40, 44); /* one each, but for a poll in between */
    end(&world);
}

static void half_written_files_are_looked_at_again(void **state)
{
    (void)state;
    struct world world;
    begin(&world, NULL);
    add(&world, world.path);
    int fd = open(world.path, O_WRONLY | O_TRUNC);
    expect(&world, "", 100); /* slow enough that the empty file is seen */
    assert_int_equal(write(fd, "new", 3), 3);
    expect(&world, "new", 100);
    assert_int_equal(write(fd, "er", 2), 2);
    close(fd);
    expect(&world, "newer", 100);
    end(&world);
}

static void same_size_in_the_same_instant(void **state)
{
    (void)state;
    struct world world;
    begin(&world, NULL);
    add(&world, world.path);
    char text[16];
    for (int i = 0; i < 100; i++) {
        snprintf(text, sizeof text, "%02d", i);
        write_file(world.path, text);
        if (i % 3 == 0)
            net_run_for(&world.net, 1);
    }
    expect(&world, "99", 100);
    end(&world);
}

static void a_hundred_changes_a_second(void **state)
{
    (void)state;
    struct world world;
    begin(&world, NULL);
    add(&world, world.path);
    char text[32];
    uint64_t from = kvr_loop_now();
    for (int i = 0; i < 100; i++) {
        snprintf(text, sizeof text, "change %d", i);
        if (i % 2)
            rename_over(world.path, text);
        else
            write_file(world.path, text);
        net_run_for(&world.net, 10);
    }
    /* Not put off until it is calm, and not one each. */
    assert_in_range(world.reports, 10, (kvr_loop_now() - from) / (16 * MS));
    expect(&world, "change 99", 100);
    end(&world);
}

static void deleted_and_made_again(void **state)
{
    (void)state;
    struct world world;
    begin(&world, NULL);
    add(&world, world.path);
    unlink(world.path);
    assert_true(net_run_until(&world.net, &world.reports, 1, 100));
    assert_string_equal(world.content, "");
    net_run_for(&world.net, 150);
    assert_int_equal(world.reports, 1);
    write_file(world.path, "back");
    expect(&world, "back", 100);
    end(&world);
}

static void directory_deleted_and_made_again(void **state)
{
    (void)state;
    struct world world;
    begin(&world, NULL);
    add(&world, world.path);
    for (int i = 0; i < 3; i++) {
        unlink(world.path);
        assert_int_equal(rmdir(world.directory), 0);
        int reports = world.reports;
        assert_true(net_run_until(&world.net, &world.reports, reports + 1, 150));
        net_run_for(&world.net, 120);
        assert_int_equal(mkdir(world.directory, 0700), 0);
        write_file(world.path, i % 2 ? "one" : "two");
        expect(&world, i % 2 ? "one" : "two", 150);
        rename_over(world.path, i % 2 ? "three" : "four");
        expect(&world, i % 2 ? "three" : "four", 100);
    }
    end(&world);
}

static void directory_replaced(void **state)
{
    (void)state;
    struct world world;
    begin(&world, NULL);
    add(&world, world.path);
    char fresh[128], old[128], file[160];
    snprintf(fresh, sizeof fresh, "%s/fresh", world.root);
    snprintf(old, sizeof old, "%s/old", world.root);
    snprintf(file, sizeof file, "%s/p.lua", fresh);
    assert_int_equal(mkdir(fresh, 0700), 0);
    write_file(file, "deployed");
    assert_int_equal(rename(world.directory, old), 0);
    assert_int_equal(rename(fresh, world.directory), 0);
    expect(&world, "deployed", 150);
    rename_over(world.path, "edited");
    expect(&world, "edited", 100);
    /* What happens in the old one is nobody's business. */
    snprintf(file, sizeof file, "%s/p.lua", old);
    int reports = world.reports;
    write_file(file, "stale");
    net_run_for(&world.net, 150);
    assert_int_equal(world.reports, reports);
    end(&world);
}

static void directory_made_later(void **state)
{
    (void)state;
    struct world world;
    begin(&world, NULL);
    char directory[128], path[160];
    snprintf(directory, sizeof directory, "%s/later", world.root);
    snprintf(path, sizeof path, "%s/q.lua", directory);
    add(&world, path);
    net_run_for(&world.net, 60);
    assert_int_equal(mkdir(directory, 0700), 0);
    write_file(path, "there");
    expect(&world, "there", 150);
    rename_over(path, "edited");
    expect(&world, "edited", 100);
    end(&world);
}

/* Deployments that swap one link: the name of the event is not the file's. */
static void links_are_followed(void **state)
{
    (void)state;
    struct world world;
    begin(&world, &(struct kvr_reloader_options){.calm_ns = 100 * MS});
    char path[160], one[160], two[160], link[160], fresh[160];
    snprintf(one, sizeof one, "%s/v1", world.directory);
    snprintf(two, sizeof two, "%s/v2", world.directory);
    assert_int_equal(mkdir(one, 0700), 0);
    assert_int_equal(mkdir(two, 0700), 0);
    snprintf(path, sizeof path, "%s/v1/q.lua", world.directory);
    write_file(path, "one");
    snprintf(path, sizeof path, "%s/v2/q.lua", world.directory);
    write_file(path, "two");
    snprintf(link, sizeof link, "%s/..data", world.directory);
    snprintf(fresh, sizeof fresh, "%s/..fresh", world.directory);
    snprintf(path, sizeof path, "%s/q.lua", world.directory);
    assert_int_equal(symlink("v1", link), 0);
    assert_int_equal(symlink("..data/q.lua", path), 0);
    add(&world, path);
    assert_int_equal(symlink("v2", fresh), 0);
    assert_int_equal(rename(fresh, link), 0);
    expect(&world, "two", 100);
    /* The target itself is edited, in a directory that is not watched. */
    snprintf(one, sizeof one, "%s/v2/q.lua", world.directory);
    write_file(one, "two, edited");
    expect(&world, "two, edited", 250);
    end(&world);
}

static void works_without_watches(void **state)
{
    (void)state;
    struct world world;
    begin(&world, &(struct kvr_reloader_options){.poll_only = true});
    add(&world, world.path);
    net_run_for(&world.net, 120);
    assert_int_equal(world.reports, 0);
    for (int i = 0; i < 5; i++) {
        rename_over(world.path, i % 2 ? "one" : "three");
        expect(&world, i % 2 ? "one" : "three", 120);
        write_file(world.path, i % 2 ? "two" : "four");
        expect(&world, i % 2 ? "two" : "four", 120);
    }
    unlink(world.path);
    expect(&world, "", 120);
    assert_int_equal(world.reloader.counters.events, 0);
    end(&world);
}

static void polls_when_the_system_refuses(void **state)
{
    (void)state;
    struct world world;
    begin(&world, &(struct kvr_reloader_options){.calm_ns = 200 * MS});
    struct rlimit before;
    getrlimit(RLIMIT_NOFILE, &before);
    struct rlimit none = {0, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    add(&world, world.path);
    setrlimit(RLIMIT_NOFILE, &before);
    assert_int_equal(world.reloader.counters.refused_watches, 1);
    write_file(world.path, "polled");
    expect(&world, "polled", 120);
    assert_int_equal(world.reloader.counters.events, 0);
    /* It asks again, and is heard. */
    net_run_for(&world.net, 350);
    rename_over(world.path, "watched");
    expect(&world, "watched", 100);
    assert_true(world.reloader.counters.events > 0);
    assert_int_equal(world.reloader.counters.refused_watches, 1);
    end(&world);
}

static void only_what_is_watched_is_reported(void **state)
{
    (void)state;
    struct world world;
    begin(&world, NULL);
    char other[160], third[160];
    snprintf(other, sizeof other, "%s/other.lua", world.directory);
    snprintf(third, sizeof third, "%s/third.lua", world.root);
    write_file(other, "other");
    add(&world, world.path);
    add(&world, other);
    add(&world, third);
    write_file(other, "other 2");
    expect(&world, "other 2", 100);
    assert_string_equal(world.last, other);
    write_file(third, "third");
    expect(&world, "third", 100);
    assert_string_equal(world.last, third);
    assert_int_equal(world.reports, 2);
    char noise[160];
    snprintf(noise, sizeof noise, "%s/.p.lua.swp", world.directory);
    for (int i = 0; i < 20; i++) {
        write_file(noise, "noise");
        net_run_for(&world.net, 10);
    }
    assert_int_equal(world.reports, 2);

    kvr_reloader_remove(&world.reloader, other);
    kvr_reloader_remove(&world.reloader, "/no/such/file");
    write_file(other, "other 3");
    net_run_for(&world.net, 120);
    assert_int_equal(world.reports, 2);
    /* Twice added, once removed: still watched. */
    add(&world, third);
    kvr_reloader_remove(&world.reloader, third);
    write_file(third, "third 2");
    expect(&world, "third 2", 100);
    kvr_reloader_remove(&world.reloader, third);
    write_file(third, "third 3");
    net_run_for(&world.net, 120);
    assert_int_equal(world.reports, 3);
    kvr_reloader_remove(&world.reloader, world.path);
    net_run_for(&world.net, 10);
    assert_int_equal(world.reloader.files_count, 0);
    assert_int_equal(world.reloader.open_handles, 2);
    end(&world);
}

static void change_the_watched(struct world *world, const char *path)
{
    char fresh[160];
    snprintf(fresh, sizeof fresh, "%s/n%d.lua", world->directory, world->reports);
    kvr_reloader_remove(&world->reloader, path);
    add(world, fresh);
}

static void close_all(struct world *world, const char *path)
{
    (void)path;
    kvr_reloader_close(&world->reloader, world, on_closed);
}

static void callbacks_may_change_what_is_watched(void **state)
{
    (void)state;
    struct world world;
    begin(&world, NULL);
    char other[160];
    snprintf(other, sizeof other, "%s/other.lua", world.directory);
    add(&world, world.path);
    add(&world, other);
    world.on_report = change_the_watched;
    write_file(world.path, "a");
    write_file(other, "b");
    assert_true(net_run_until(&world.net, &world.reports, 2, 1000));
    assert_int_equal(world.reloader.files_count, 2); /* n1.lua and n2.lua */
    world.on_report = close_all;
    for (int i = 1; i <= 2; i++) {
        snprintf(other, sizeof other, "%s/n%d.lua", world.directory, i);
        write_file(other, "c");
    }
    assert_true(net_run_until(&world.net, &world.closed, 1, 1000));
    assert_int_equal(world.reports, 3);
    end(&world);
}

static void files_are_limited(void **state)
{
    (void)state;
    struct world world;
    begin(&world, NULL);
    char path[160];
    struct kvr_error error = {0};
    for (int i = 0; i <= KVR_RELOADER_FILES_MAX; i++) {
        snprintf(path, sizeof path, "%s/f%d", world.directory, i);
        assert_int_equal(kvr_reloader_add(&world.reloader, path, &error),
                         i < KVR_RELOADER_FILES_MAX ? 0 : KVR_E_LIMIT);
    }
    snprintf(path, sizeof path, "%s/f%d", world.directory, 200);
    write_file(path, "here");
    expect(&world, "here", 100);
    assert_int_equal(world.reports, 1);
    end(&world);
}

static void relative_paths_work(void **state)
{
    (void)state;
    struct world world;
    begin(&world, NULL);
    char before[512];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(world.directory), 0);
    add(&world, "p.lua");
    rename_over("p.lua", "relative");
    expect(&world, "relative", 100);
    assert_int_equal(chdir(before), 0);
    end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saves_of_all_kinds_are_seen_in_time),
        cmocka_unit_test(half_written_files_are_looked_at_again),
        cmocka_unit_test(same_size_in_the_same_instant),
        cmocka_unit_test(a_hundred_changes_a_second),
        cmocka_unit_test(deleted_and_made_again),
        cmocka_unit_test(directory_deleted_and_made_again),
        cmocka_unit_test(directory_replaced),
        cmocka_unit_test(directory_made_later),
        cmocka_unit_test(links_are_followed),
        cmocka_unit_test(works_without_watches),
        cmocka_unit_test(polls_when_the_system_refuses),
        cmocka_unit_test(only_what_is_watched_is_reported),
        cmocka_unit_test(callbacks_may_change_what_is_watched),
        cmocka_unit_test(files_are_limited),
        cmocka_unit_test(relative_paths_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
