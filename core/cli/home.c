#include "home.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The policies of one and the same tree come first in both lists. A build folder may be anywhere:
 * the sources' own place is known from the build. */
static const char *const policies[] = {"../share/kvroute/policies", "../policies", "../../policies",
                                       KVR_SOURCE_DIR "/policies", NULL};
static const char *const libraries[] = {"../share/kvroute/lua", "../scripts", "../../scripts",
                                        KVR_SOURCE_DIR "/scripts", NULL};

/* The first of `folders`, seen from `from`, that has a file `mark` in it. */
static int find(char found[PATH_MAX], const char *from, const char *const *folders,
                const char *mark)
{
    for (; *folders; folders++) {
        char path[3 * PATH_MAX];
        bool absolute = **folders == '/';
        int len = snprintf(path, sizeof path, "%s%s%s/", absolute ? "" : from, absolute ? "" : "/",
                           *folders);
        snprintf(path + len, sizeof path - (size_t)len, "%s", mark);
        if (access(path, R_OK) != 0)
            continue;
        path[len] = '\0';
        return realpath(path, found) ? 0 : KVR_E_IO;
    }
    return KVR_E_NOT_FOUND;
}

int kvr_home_find(struct kvr_home *home, struct kvr_error *error)
{
    ssize_t len = readlink("/proc/self/exe", home->binary, sizeof home->binary - 1);
    if (len <= 0)
        return kvr_error_set(error, KVR_E_IO, "/proc/self/exe cannot be read");
    home->binary[len] = '\0';
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", home->binary);
    *strrchr(folder, '/') = '\0';
    if (find(home->policies, folder, policies, "prefix_affinity.lua"))
        return kvr_error_set(error, KVR_E_NOT_FOUND, "there are no policies beside %s", folder);
    if (find(home->library, folder, libraries, "kvroute/main.lua"))
        return kvr_error_set(error, KVR_E_NOT_FOUND, "there is no Lua library beside %s", folder);
    return 0;
}
