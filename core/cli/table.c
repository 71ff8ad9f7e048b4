#include "table.h"

#include <stdarg.h>
#include <string.h>

#define GAP "  " /* between columns */

void kvr_table_init(struct kvr_table *table, const char *kinds)
{
    *table = (struct kvr_table){.columns = (uint32_t)strlen(kinds), .kinds = kinds};
    KVR_CHECK(table->columns > 0 && table->columns <= KVR_TABLE_COLUMNS_MAX);
}

void kvr_table_deinit(struct kvr_table *table)
{
    kvr_buffer_deinit(&table->at);
    kvr_buffer_deinit(&table->text);
}

void kvr_table_cell(struct kvr_table *table, const char *format, ...)
{
    char cell[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(cell, sizeof cell, format, arguments);
    va_end(arguments);
    size_t at = table->text.len;
    kvr_buffer_append(&table->at, &at, sizeof at);
    kvr_buffer_append(&table->text, cell, strlen(cell) + 1);
    table->cells++;
}

void kvr_table_row(struct kvr_table *table, const char *const *cells)
{
    for (uint32_t i = 0; i < table->columns; i++)
        kvr_table_cell(table, "%s", cells[i]);
}

static const char *cell_at(const struct kvr_table *table, uint32_t cell)
{
    size_t at;
    memcpy(&at, table->at.data + cell * sizeof at, sizeof at);
    return table->text.data + at;
}

/* Characters, as against bytes. */
static uint32_t width_of(const char *text)
{
    uint32_t width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static void fit(const struct kvr_table *table, uint32_t *widths, uint32_t width)
{
    uint32_t total = (uint32_t)strlen(GAP) * (table->columns - 1);
    for (uint32_t i = 0; i < table->columns; i++)
        total += widths[i];
    while (total > width) {
        uint32_t widest = table->columns;
        for (uint32_t i = 0; i < table->columns; i++)
            if (table->kinds[i] == 'l' && (widest == table->columns || widths[i] > widths[widest]))
                widest = i;
        if (widest == table->columns || widths[widest] <= 4)
            return;
        widths[widest]--;
        total--;
    }
}

static void print_cell(FILE *out, const char *text, uint32_t width, bool right, bool last)
{
    uint32_t has = width_of(text);
    if (has > width) {
        const char *end = text;
        for (uint32_t seen = 0; *end; end++) {
            seen += ((unsigned char)*end & 0xc0) != 0x80;
            if (seen == width)
                break;
        }
        fprintf(out, "%.*s~", (int)(end - text), text);
        return;
    }
    int pad = (int)(width - has);
    if (right)
        fprintf(out, "%*s%s", pad, "", text);
    else
        fprintf(out, "%s%*s", text, last ? 0 : pad, "");
}

void kvr_table_print(const struct kvr_table *table, FILE *out, uint32_t width)
{
    uint32_t widths[KVR_TABLE_COLUMNS_MAX] = {0};
    KVR_CHECK(table->cells % table->columns == 0);
    for (uint32_t i = 0; i < table->cells; i++) {
        uint32_t has = width_of(cell_at(table, i));
        if (has > widths[i % table->columns])
            widths[i % table->columns] = has;
    }
    fit(table, widths, width);
    for (uint32_t i = 0; i < table->cells; i++) {
        uint32_t column = i % table->columns;
        bool last = column == table->columns - 1;
        print_cell(out, cell_at(table, i), widths[column], table->kinds[column] == 'r', last);
        fputs(last ? "\n" : GAP, out);
    }
}
