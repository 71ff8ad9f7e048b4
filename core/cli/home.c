#include "home.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Seen from the binary's folder: as installed, then as built within the sources. */
static const char *const policies[] = {"/../share/kvroute/policies", "/../policies",
                                       "/../../policies", NULL};
static const char *const libraries[] = {"/../share/kvroute/lua", "/../scripts", "/../../scripts",
                                        NULL};

/* The folder `name` below `from`, if it has a file `mark` in it. */
static int try(char found[PATH_MAX], const char *from, const char *name, const char *mark)
{
    char path[2 * PATH_MAX];
    int len = snprintf(path, sizeof path, "%s%s", from, name);
    snprintf(path + len, sizeof path - (size_t)len, "/%s", mark);
    if (access(path, R_OK) != 0)
        return KVR_E_NOT_FOUND;
    path[len] = '\0';
    return realpath(path, found) ? 0 : KVR_E_IO;
}

/* The first of `names` below the binary's folder, or `in_sources`: a build folder may be anywhere,
 * and where its sources are is known from the build. */
static int find(char found[PATH_MAX], const char *from, const char *const *names,
                const char *in_sources, const char *mark)
{
    for (; *names; names++)
        if (try(found, from, *names, mark) == 0)
            return 0;
    return try(found, KVR_SOURCE_DIR, in_sources, mark);
}

static int find_binary(struct kvr_home *home, char folder[PATH_MAX], struct kvr_error *error)
{
    ssize_t len = readlink("/proc/self/exe", home->binary, sizeof home->binary - 1);
    if (len <= 0)
        return kvr_error_set(error, KVR_E_IO, "/proc/self/exe cannot be read");
    home->binary[len] = '\0';
    snprintf(folder, PATH_MAX, "%s", home->binary);
    *strrchr(folder, '/') = '\0';
    return 0;
}

int kvr_home_find_policies(struct kvr_home *home, struct kvr_error *error)
{
    char folder[PATH_MAX];
    int rc = find_binary(home, folder, error);
    if (rc == 0 && find(home->policies, folder, policies, "/policies", "prefix_affinity.lua"))
        rc = kvr_error_set(error, KVR_E_NOT_FOUND, "there are no policies beside %s", folder);
    return rc;
}

int kvr_home_find(struct kvr_home *home, struct kvr_error *error)
{
    char folder[PATH_MAX];
    int rc = kvr_home_find_policies(home, error);
    if (rc == 0)
        rc = find_binary(home, folder, error);
    if (rc)
        return rc;
    if (find(home->library, folder, libraries, "/scripts", "kvroute/main.lua"))
        return kvr_error_set(error, KVR_E_NOT_FOUND, "there is no Lua library beside %s", folder);
    return 0;
}
