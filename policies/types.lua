---@meta
-- luacheck: ignore
-- What policies and spill rules may read, for editors that know LuaCATS annotations. Nothing loads
-- this file. The layout is core/model/abi.h; policies/README.md has the contract in prose.
--
-- Indices are 0-based everywhere: view[0] is the first row. Times are milliseconds. Hashes are 32
-- bits, 0 = none. A number that nobody has read yet is NaN, and every comparison with it is false.
-- All of it is read-only and valid during one call: keep numbers, never a row.

---The request that waits for a decision.
---@class kvr.Request
---@field now_ms number router time of this decision
---@field prompt_bytes number canonical prompt bytes; 0 without a prompt
---@field prompt_tokens number estimated from prompt_bytes
---@field max_tokens number as asked for; NaN when not stated
---@field priority number lower first; 0 when not stated
---@field slo_ttft_ms number first-token target; NaN when there is none
---@field chain_len integer whole blocks in the prompt
---@field block_bytes integer canonical bytes of one block
---@field serial integer counts requests of this model, survives reloads: rotate ties by it
---@field model integer hash
---@field session integer hash; 0 = the request cannot be tied to a conversation
---@field tenant integer hash
---@field routing_key integer hash of the key that a plan places; the session unless configured
---@field turn integer 1-based user turn of the conversation; 0 = unknown
---@field attempt integer 0 at first, 1 after one replica failed this request, ...
---@field stream integer 1: the client asked for a stream
local Request = {}

---Key of the leading blocks 0..i, as its low and high 32 bits: equal keys, equal prompts up to the
---end of block i, as far as 32 (or 64) bits tell. Errors unless 0 <= i < chain_len.
---@param i integer
---@return integer key, integer high
function Request:block(i) end

---One replica as this decision sees it. Its index in the view is what a policy returns.
---@class kvr.Row
---@field available boolean may be picked now
---@field weight number > 0
---@field ramp number (0, 1]: the share of its weight that it gets back after a return
---@field load number in_flight / (weight x ramp)
---@field in_flight number requests dispatched here and not finished; exact, counted by this router
---@field capacity number most requests in flight; infinite when unlimited
---@field uncached_tokens number estimated prompt tokens dispatched here and not yet prefilled
---@field prefill_tokens number those and what this prompt would add: all until its first token
---@field active_tokens number estimated prompt tokens of requests in flight here, cached or not
---@field remote_in_flight number in_flight of other routers; NaN when alone
---@field remote_age_ms number age of that count
---@field age_ms number since it last became available
---@field running number engine: requests in the batch
---@field waiting number engine: requests queued
---@field kv_usage number engine: 0..1, blocks of running requests
---@field engine_hit_rate number engine: prefix cache hits over queries in the last window
---@field signals_age_ms number age of the four above
---@field match_blocks integer believed: leading blocks of this prompt held here (needs match)
---@field match_tokens number the same in estimated tokens (needs match)
---@field resident_blocks integer by KV events (needs residency)
---@field active_blocks integer of the prompts in flight here, each block once (needs active)
---@field active_match_blocks integer leading blocks of this prompt among those (needs active)
---@field resident_tokens number by KV events; NaN when not followed (needs residency)
---@field ttft_ms number average of recent first-token times
---@field error_rate number average of recent failures, 0..1
---@field prefill_tokens_per_s number measured; NaN before the first
---@field output_tokens number average of recent answers
---@field token_ms number average time between two tokens of recent answers, after the first
---@field recent_uncached_tokens number dispatched here in the last 3 minutes (needs work)
---@field key_age_ms number since this routing key last came here; NaN never (needs keys)
---@field assigned integer 1: the plan places this routing key here (needs plan)
---@field id integer slot in the replica table, stable while it is a member
---@field name integer hash of authority and rank, stable for ever
---@field operational integer 0 down, 1 suspect, 2 ramping, 3 up
---@field administrative integer 0 off, 1 draining, 2 ready

---All replicas that serve the request's model, in ascending id order: view[0] .. view[count - 1].
---Totals, means, minima and maxima are over available rows.
---@class kvr.View
---@field [integer] kvr.Row
---@field count integer rows
---@field available integer available rows
---@field max_match_blocks integer longest match on an available row (needs match)
---@field planned integer 1: a plan is installed and has this routing key (needs plan)
---@field total_in_flight number
---@field min_in_flight number
---@field max_in_flight number
---@field mean_in_flight number
---@field min_load number
---@field mean_load number
---@field total_weight number sum of weight x ramp
---@field max_prefill_tokens_per_s number NaN before the first measurement

---Row indices in some order: order[0] .. order[count - 1]. Unavailable rows are in it. The next
---call that makes an order overwrites it.
---@class kvr.Order
---@field [integer] integer
---@field count integer

---What happened to a request, for policies that learn.
---@class kvr.Event
---@field kind integer 0 dispatched, 1 first_byte, 2 done, 3 failed
---@field now_ms number
---@field ttft_ms number NaN unless first_byte or done
---@field total_ms number NaN unless done or failed
---@field prompt_tokens number as the engine counted; NaN unknown
---@field cached_tokens number as the engine counted; NaN unknown
---@field output_tokens number as the engine counted; NaN unknown
---@field replica integer id, as in kvr.Row
---@field session integer hash
---@field routing_key integer hash
---@field model integer hash
---@field match_blocks integer believed at the decision

---@alias kvr.Param string|number|boolean
---@alias kvr.Need "match"|"plan"|"residency"|"keys"|"openings"|"work"|"active"
---@alias kvr.Field "load"|"in_flight"|"uncached_tokens"|string a number of kvr.Row

---The table that a policy file returns.
---@class kvr.Policy
---@field api integer 1
---@field name string a-z, 0-9 and _; the file's name without .lua
---@field needs? kvr.Need[] what costs something to fill in
---@field params? table<string, kvr.Param> defaults; settings from outside replace them
---@field init? fun(params: table<string, kvr.Param>) once, before the first pick; error() refuses
---@field pick fun(request: kvr.Request, view: kvr.View): integer?, string?, boolean?
---@field observe? fun(event: kvr.Event)
---@field export? fun(): table plain data for the text that comes next
---@field import? fun(state: table)

---The table that a spill rule's file returns. Returning `preferred` means stay.
---@class kvr.Spill
---@field api integer 1
---@field name string a-z, 0-9 and _; the file's name without .lua
---@field needs? kvr.Need[]
---@field params? table<string, kvr.Param>
---@field init? fun(params: table<string, kvr.Param>)
---@field spill fun(request: kvr.Request, view: kvr.View, preferred: integer): integer?, string?

---What a policy finds besides math (random is seeded by the slot), bit, ipairs, assert, error,
---type, tonumber, tostring and log. All helpers look at the view of the running call.
---@class kvr.Helpers
---@field HOLD integer result of pick: wait in the queue for a change of the fleet or its load
---@field REJECT integer result of pick: refuse the request
kvr = {}

---The available row with the smallest field. Ties rotate by request.serial. nil: none available.
---@param field? kvr.Field "load" when left out
---@return integer? index
function kvr.least(field) end

---The same among rows that hold at least `blocks` leading blocks of the prompt.
---@param blocks integer
---@param field? kvr.Field
---@return integer? index
function kvr.least_matching(blocks, field) end

---The same among all rows but one.
---@param except integer index
---@param field? kvr.Field
---@return integer? index
function kvr.least_except(except, field) end

---The same among the rows that the plan has for this request's routing key (needs plan).
---@param field? kvr.Field
---@return integer? index
function kvr.least_assigned(field) end

---The same among the rows that this request's routing key came to within `ms` (needs keys).
---@param ms number
---@param field? kvr.Field
---@return integer? index
function kvr.least_recent(ms, field) end

---The available row of smallest cost. Ties rotate. A cost of nil or NaN leaves the row out. `cost`
---is called twice for some rows: it must not change anything.
---@param cost fun(row: kvr.Row): number?
---@return integer? index
function kvr.least_by(cost) end

---The (n mod available)-th available row, from 0: round robin with n = request.serial.
---@param n integer
---@return integer? index
function kvr.nth_available(n) end

---The first available row of an order, and its place in it.
---@param order kvr.Order
---@param except? integer index of a row that will not do
---@return integer? index, integer? place
function kvr.first_available(order, except) end

---Rows clockwise on the ring of virtual nodes, from the position of `key`. The ring follows
---weights, not ramps. Another salt makes another, independent ring.
---@param key integer
---@param salt? integer 0 when left out
---@param limit? integer most rows; all when left out
---@return kvr.Order
function kvr.ring_order(key, salt, limit) end

---Rows by falling rendezvous score of `key`, weighted.
---@param key integer
---@param salt? integer 0 when left out
---@param limit? integer most rows; all when left out
---@return kvr.Order
function kvr.hrw_order(key, salt, limit) end

---Share of recent requests that had this routing key and this request's model, 0..1. NaN: not
---followed (needs keys).
---@param key integer
---@return number
function kvr.share(key) end

---Share of recent requests that begin with the same leading blocks as this one, 0..1. NaN: it has
---fewer, or nobody counts (needs openings).
---@param blocks integer 1, 2, 4, 8, 16, 32, 64, 96, ... or 512
---@return number
function kvr.opening_share(blocks) end

---The fewest leading blocks, of those that are counted, that at most this share of recent requests
---begin with. nil: too many share all that the prompt has, or nobody counts (needs openings).
---@param share number 0..1
---@param least? integer blocks; 1 when left out
---@return integer? blocks
function kvr.rare_opening(share, least) end

---One line in the router's log. It allocates: not for every pick.
---@param ... any
function log(...) end
