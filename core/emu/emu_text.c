#include "emu_text.h"

#include "answer.h"
#include "rng.h"

#define CELL 12u

static uint64_t cell_hash(uint64_t seed, size_t cell)
{
    return kvr_mix64(seed + (cell + 1) * 0x9e3779b97f4a7c15u);
}

/* Bytes of each character of a cell. */
static size_t character_bytes(enum kvr_emu_alphabet alphabet, uint64_t hash)
{
    if (alphabet == KVR_EMU_MIXED)
        return hash >> 63 ? 4 : 3;
    return alphabet == KVR_EMU_EMOJI ? 4 : 3;
}

static void write_cell(enum kvr_emu_alphabet alphabet, uint64_t hash, char cell[CELL])
{
    size_t bytes = character_bytes(alphabet, hash);
    for (size_t at = 0; at < CELL; at += bytes, hash >>= 8) {
        uint32_t low = (uint32_t)hash & 0xff;
        if (bytes == 3) {
            uint32_t code = 0x4e00 + low; /* common ideographs */
            cell[at] = (char)(0xe0 | code >> 12);
            cell[at + 1] = (char)(0x80 | (code >> 6 & 63));
            cell[at + 2] = (char)(0x80 | (code & 63));
        } else {
            uint32_t code = 0x1f600 + low % 80; /* faces */
            cell[at] = (char)(0xf0 | code >> 18);
            cell[at + 1] = (char)(0x80 | (code >> 12 & 63));
            cell[at + 2] = (char)(0x80 | (code >> 6 & 63));
            cell[at + 3] = (char)(0x80 | (code & 63));
        }
    }
}

size_t kvr_emu_text_cut(enum kvr_emu_alphabet alphabet, uint64_t seed, size_t at)
{
    if (alphabet == KVR_EMU_ASCII)
        return at;
    return at - at % CELL % character_bytes(alphabet, cell_hash(seed, at / CELL));
}

void kvr_emu_text_bytes(enum kvr_emu_alphabet alphabet, uint64_t seed, size_t offset, size_t len,
                        char *out)
{
    if (alphabet == KVR_EMU_ASCII) {
        kvr_answer_bytes(seed, offset, len, out);
        return;
    }
    char cell[CELL];
    for (size_t i = 0; i < len; i++) {
        size_t at = offset + i;
        if (i == 0 || at % CELL == 0)
            write_cell(alphabet, cell_hash(seed, at / CELL), cell);
        out[i] = cell[at % CELL];
    }
}
