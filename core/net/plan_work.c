#include "plan_work.h"

#include "check.h"
#include "file.h"
#include "loop.h"
#include "plan_file.h"

static void load_file(struct kvr_plan_work *work, const struct kvr_planning_options *options,
                      const char *path)
{
    struct kvr_buffer text = {0};
    struct kvr_error reason = {0};
    if (kvr_file_read(path, KVR_PLAN_FILE_MAX, &text, &work->error) == KVR_OK &&
        kvr_planning_load(&work->planning, options, kvr_buffer_slice(&text), &work->made, &reason))
        kvr_error_set(&work->error, reason.code, "%s: %s", path, reason.text);
    kvr_buffer_deinit(&text);
}

static void plan_traffic(struct kvr_plan_work *work, const struct kvr_planning_options *options)
{
    kvr_planning_finish(&work->planning);
    if (work->planning.keys_len == 0)
        kvr_error_set(&work->error, KVR_E_STATE,
                      "no request with a routing key came within the window");
    else if (kvr_planning_make(&work->planning, options, &work->made, &work->error))
        KVR_CHECK(work->error.code);
}

void kvr_plan_work_make(struct kvr_plan_work *work, const struct kvr_planning_options *options,
                        const char *file)
{
    uint64_t began_ns = kvr_loop_now();
    work->made = (struct kvr_next_plan){0};
    work->error = (struct kvr_error){0};
    if (*file)
        load_file(work, options, file);
    else
        plan_traffic(work, options);
    if (work->made.plan)
        kvr_plan_census_init(&work->census, work->made.plan);
    work->took_ns = kvr_loop_now() - began_ns;
}

void kvr_plan_work_clean(struct kvr_plan_work *work)
{
    kvr_next_plan_deinit(&work->made);
    kvr_planning_deinit(&work->planning);
    kvr_plan_census_deinit(&work->census);
    kvr_plan_destroy(work->rubbish);
    *work = (struct kvr_plan_work){0};
}
