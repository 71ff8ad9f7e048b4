/* Intrusive doubly linked list: the link lives in the object, the list owns nothing.
 *
 *   struct timer { struct kvr_list link; ... };
 *   struct kvr_list timers;  kvr_list_init(&timers);  kvr_list_append(&timers, &timer->link);
 *   struct timer *first = KVR_LIST_ENTRY(timers.next, struct timer, link);
 *
 * An unlinked link points at itself, so removing twice is harmless. */
#ifndef KVR_LIST_H
#define KVR_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct kvr_list {
    struct kvr_list *next;
    struct kvr_list *prev;
};

#define KVR_LIST_ENTRY(link, type, member) ((type *)((char *)(link)-offsetof(type, member)))

/* Removing the current link inside the loop is allowed; removing the next one is not. */
#define KVR_LIST_FOREACH(link, list)                                                               \
    for (struct kvr_list *link = (list)->next, *link##_next = link->next; link != (list);          \
         link = link##_next, link##_next = link->next)

static inline void kvr_list_init(struct kvr_list *list)
{
    list->next = list;
    list->prev = list;
}

static inline bool kvr_list_empty(const struct kvr_list *list)
{
    return list->next == list;
}

static inline void kvr_list_append(struct kvr_list *list, struct kvr_list *link)
{
    link->prev = list->prev;
    link->next = list;
    list->prev->next = link;
    list->prev = link;
}

static inline void kvr_list_prepend(struct kvr_list *list, struct kvr_list *link)
{
    kvr_list_append(list->next, link);
}

static inline void kvr_list_remove(struct kvr_list *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    kvr_list_init(link);
}

#endif
