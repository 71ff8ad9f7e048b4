/* What an emulated replica says, in the alphabet that a test needs: the engine's own ASCII, or text
 * of characters of three and four bytes, so that a cut may fall inside one. Any range of an answer
 * can be written alone, and equal seeds give equal text.
 *
 * Wide text is made of cells of 12 bytes, which hold 4 characters of 3 bytes or 3 of 4. */
#ifndef KVR_EMU_TEXT_H
#define KVR_EMU_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "slice.h"

enum kvr_emu_alphabet { KVR_EMU_ASCII, KVR_EMU_CJK, KVR_EMU_EMOJI, KVR_EMU_MIXED };

/* The greatest offset <= `at` that is no place inside a character: an engine sends no half ones. */
size_t kvr_emu_text_cut(enum kvr_emu_alphabet alphabet, uint64_t seed, size_t at);
/* Writes bytes [offset, offset + len) of the text of `seed`. */
void kvr_emu_text_bytes(enum kvr_emu_alphabet alphabet, uint64_t seed, size_t offset, size_t len,
                        char *out);

#endif
