/* A table of text for people: columns as wide as their cells, together at most `width` characters.
 * What does not fit is cut in the columns of text, the widest first, and ends in '~'. */
#ifndef KVR_TABLE_H
#define KVR_TABLE_H

#include <stdint.h>
#include <stdio.h>

#include "buffer.h"
#include "check.h"

#define KVR_TABLE_COLUMNS_MAX 24
#define KVR_TABLE_WIDTH       100

struct kvr_table {
    uint32_t columns;
    uint32_t cells;       /* so far, headers included */
    const char *kinds;    /* one letter a column: 'l' text, 'i' ids, never cut, 'r' numbers, to the
                             right, never cut */
    struct kvr_buffer at; /* of each cell: its offset in text */
    struct kvr_buffer text;
};

/* `kinds` has a letter for each column; the first cells are the headers. */
void kvr_table_init(struct kvr_table *table, const char *kinds);
void kvr_table_deinit(struct kvr_table *table);
/* Cells go from left to right, row by row. */
void kvr_table_cell(struct kvr_table *table, const char *format, ...) KVR_PRINTF(2, 3);
/* One cell for each column, which is how many there must be. */
void kvr_table_row(struct kvr_table *table, const char *const *cells);
void kvr_table_print(const struct kvr_table *table, FILE *out, uint32_t width);

#endif
