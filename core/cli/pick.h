/* Takes single values out of a JSON text by their place, for showing: "requests.outcomes.success".
 * Each pick walks the text from its start: for answers of a few KB, not for data. */
#ifndef KVR_PICK_H
#define KVR_PICK_H

#include <stdbool.h>

#include "json_reader.h"
#include "slice.h"

/* The value at that place as it stands in the text; empty when there is none. */
struct kvr_slice kvr_pick(struct kvr_slice json, const char *path);
/* A string's text, any other value as it stands; null or a missing one is "". What a terminal might
 * obey (control characters) is shown as '?', and what is longer is cut. To be used at once:
 *
 *   printf("%s\n", kvr_pick_text(json, "name").text); */
struct kvr_picked {
    char text[640];
};
struct kvr_picked kvr_pick_text(struct kvr_slice json, const char *path);
/* NaN when there is none, or it is no number. */
double kvr_pick_number(struct kvr_slice json, const char *path);
bool kvr_pick_true(struct kvr_slice json, const char *path);

/* Walks the items of an array, or the members of an object, at that place ("" is the whole):
 *
 *   struct kvr_walk walk;
 *   for (kvr_walk_start(&walk, json, "replicas"); kvr_walk_next(&walk);)
 *       ... walk.item ... */
struct kvr_walk {
    struct kvr_json_reader json;
    bool object;
    struct kvr_slice key; /* of a member, as it stands in the text */
    struct kvr_slice item;
};

void kvr_walk_start(struct kvr_walk *walk, struct kvr_slice json, const char *path);
bool kvr_walk_next(struct kvr_walk *walk);

#endif
