/* /v1/embeddings: unit vectors that are a function of their text, as numbers or as base64 of
 * little-endian floats, which the official clients ask for. */
#include <math.h>
#include <string.h>

#include "emu_shape.h"
#include "rng.h"

static float component(uint64_t seed, uint32_t index, uint32_t size)
{
    uint64_t word = kvr_mix64(seed + (index + 1) * 0x9e3779b97f4a7c15u);
    /* Uniform in [-1, 1) with variance 1/3, so that `size` of them have a length near 1. */
    double uniform = (double)(word >> 11) * 0x1p-52 - 1;
    return (float)(uniform * sqrt(3.0 / (double)size));
}

static void put_base64(struct kvr_json_writer *json, uint64_t seed, uint32_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct kvr_buffer bytes = {0};
    struct kvr_buffer text = {0};
    for (uint32_t i = 0; i < size; i++) {
        uint32_t bits;
        float value = component(seed, i, size);
        memcpy(&bits, &value, sizeof bits);
        for (int k = 0; k < 4; k++)
            kvr_buffer_append(&bytes, &(char){(char)(bits >> (8 * k))}, 1);
    }
    for (size_t at = 0; at < bytes.len; at += 3) {
        size_t left = bytes.len - at;
        uint32_t word = 0;
        for (size_t k = 0; k < 3; k++)
            word = word << 8 | (k < left ? (unsigned char)bytes.data[at + k] : 0);
        char four[4];
        for (int k = 0; k < 4; k++)
            four[k] = digits[word >> (18 - 6 * k) & 63];
        for (size_t k = left < 3 ? left + 1 : 4; k < 4; k++)
            four[k] = '=';
        kvr_buffer_append(&text, four, 4);
    }
    kvr_json_string(json, "embedding", kvr_buffer_slice(&text));
    kvr_buffer_deinit(&bytes);
    kvr_buffer_deinit(&text);
}

static void put_vector(struct kvr_json_writer *json, const struct kvr_emu_answer *answer,
                       const struct kvr_emu_choice *choice)
{
    kvr_json_object_begin(json, NULL);
    kvr_json_uint(json, "index", choice->index);
    kvr_json_text(json, "object", "embedding");
    if (answer->base64) {
        put_base64(json, choice->seed, answer->embedding_size);
    } else {
        kvr_json_array_begin(json, "embedding");
        for (uint32_t i = 0; i < answer->embedding_size; i++)
            kvr_json_double(json, NULL, (double)component(choice->seed, i, answer->embedding_size));
        kvr_json_array_end(json);
    }
    kvr_json_object_end(json);
}

static void whole(struct kvr_emu_answer *answer, struct kvr_buffer *out)
{
    struct kvr_json_writer json = {.out = out};
    struct kvr_emu_usage usage = kvr_emu_answer_usage(answer);
    usage.completion_tokens = 0; /* the engine's one token is not an output */
    kvr_json_object_begin(&json, NULL);
    kvr_json_text(&json, "id", answer->id);
    kvr_json_text(&json, "object", "list");
    kvr_json_uint(&json, "created", answer->created_s);
    kvr_json_text(&json, "model", answer->model);
    kvr_json_array_begin(&json, "data");
    for (uint32_t i = 0; i < answer->choices_len; i++)
        put_vector(&json, answer, &answer->choices[i]);
    kvr_json_array_end(&json);
    kvr_emu_put_usage(&json, answer, "usage", &usage, true);
    kvr_json_object_end(&json);
}

const struct kvr_emu_shape kvr_emu_shape_embeddings = {.whole = whole};
