/* Tickets: who holds what on which replica. A ticket is opened by a dispatch and closed exactly
 * once, however the request ends; closing twice is a bug and dies. Between the two it accounts one
 * request in flight, its prompt's tokens and, until its first token, an estimate of those still to
 * be prefilled.
 *
 *   open ----------------> first_token ------> close
 *   in_flight +1           uncached -est        in_flight -1 (and uncached -est if no first token)
 *   prompt +est                                 prompt -est
 */
#ifndef KVR_LEDGER_H
#define KVR_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "load.h"

struct kvr_ticket {
    uint32_t slot;
    uint32_t generation; /* 0: no ticket */
};

struct kvr_ledger_entry {
    uint32_t generation; /* odd while open */
    uint32_t replica;
    uint32_t prompt_tokens;
    uint32_t uncached_tokens; /* 0 once released */
    uint32_t next_free;
};

struct kvr_ledger {
    struct kvr_ledger_entry *entries; /* owned; `capacity` of them */
    uint32_t capacity;
    uint32_t open;          /* tickets that are held */
    uint32_t first_free;    /* UINT32_MAX: full */
    struct kvr_load *loads; /* by replica slot, the router's */
    uint32_t loads_count;
};

void kvr_ledger_init(struct kvr_ledger *ledger, uint32_t capacity, struct kvr_load *loads,
                     uint32_t loads_count);
void kvr_ledger_deinit(struct kvr_ledger *ledger);

/* Opens a ticket; its generation is 0 when the ledger is full. */
struct kvr_ticket kvr_ledger_open(struct kvr_ledger *ledger, uint32_t replica,
                                  uint32_t prompt_tokens, uint32_t uncached_tokens);
/* Releases the ticket's uncached tokens; harmless the second time. */
void kvr_ledger_first_token(struct kvr_ledger *ledger, struct kvr_ticket ticket);
void kvr_ledger_close(struct kvr_ledger *ledger, struct kvr_ticket ticket);
/* Checks that the sums over open tickets equal the loads; dies if not. For tests and simulation. */
void kvr_ledger_verify(const struct kvr_ledger *ledger);

#endif
