#include "pages.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"

void kvr_pages_init(struct kvr_pages *pages, size_t bytes)
{
    memset(pages, 0, sizeof *pages);
    if (bytes == 0)
        return;
    KVR_CHECK(bytes < SIZE_MAX - KVR_PAGES_HUGE);
    /* The slack lets the start be moved up to a huge page. It is never touched. */
    size_t slack = bytes >= KVR_PAGES_HUGE ? KVR_PAGES_HUGE : 0;
    void *mapping = mmap(NULL, bytes + slack, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    KVR_CHECK(mapping != MAP_FAILED);
    uintptr_t start = (uintptr_t)mapping;
    if (slack)
        start = (start + KVR_PAGES_HUGE - 1) & ~(uintptr_t)(KVR_PAGES_HUGE - 1);
    pages->memory = (char *)mapping + (start - (uintptr_t)mapping);
    pages->bytes = bytes;
    pages->mapping = mapping;
    pages->mapped = bytes + slack;
#ifdef MADV_HUGEPAGE
    /* Advice only: a system without huge pages is slower, not wrong. */
    if (slack)
        (void)madvise(pages->memory, bytes, MADV_HUGEPAGE);
#endif
}

void kvr_pages_deinit(struct kvr_pages *pages)
{
    if (pages->mapping)
        KVR_CHECK(munmap(pages->mapping, pages->mapped) == 0);
    memset(pages, 0, sizeof *pages);
}
