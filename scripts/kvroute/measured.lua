-- What was measured on the real fleet: five RTX 3090 with Llama 3.1 8B AWQ under vLLM 0.28, 32
-- users who never pause, cells of 300 s, as published by the authors of the seed study
-- (yuchia329/kvroute on GitHub, grids of September 2026). Medians of two or three runs with their
-- range: goodput, low, high (requests/s), cached (% of prompt tokens), TTFT p50 and p99 (ms),
-- prompt tokens computed a request.
--
-- Of prefix_affinity without its spill rule and of prefix_hash the medians of goodput are known;
-- the latter comes from a grid whose engines also reported their caches.
local M = {}

local rows = {
  -- policy, working set, skew
  { "round_robin", 0.25, 0, 5.40, 5.07, 5.42, 54.2, 555, 3842, 1404 },
  { "round_robin", 0.25, 1, 9.87, 9.87, 10.06, 77.5, 307, 2939, 685 },
  { "round_robin", 0.25, 1.4, 16.27, 16.04, 16.57, 88.8, 92, 2301, 341 },
  { "round_robin", 1, 0, 3.51, 3.37, 3.55, 33.9, 742, 3918, 2050 },
  { "round_robin", 1, 1, 6.41, 6.33, 6.42, 62.5, 467, 3262, 1145 },
  { "round_robin", 1, 1.4, 11.22, 11.22, 11.66, 81.9, 145, 2490, 549 },
  { "round_robin", 3, 0, 3.24, 3.16, 3.30, 30.1, 813, 3814, 2173 },
  { "round_robin", 3, 1, 5.15, 5.08, 5.28, 54.6, 619, 3426, 1388 },
  { "round_robin", 3, 1.4, 11.23, 10.86, 11.53, 80.4, 224, 2611, 597 },
  { "round_robin", 8, 0, 3.21, 3.20, 3.24, 27.8, 801, 4252, 2236 },
  { "round_robin", 8, 1, 4.74, 4.61, 4.87, 50.3, 647, 4043, 1519 },
  { "round_robin", 8, 1.4, 10.21, 10.00, 10.22, 78.6, 298, 3034, 651 },
  { "least_outstanding", 0.25, 0, 11.23, 10.99, 11.38, 68.0, 417, 1786, 980 },
  { "least_outstanding", 0.25, 1, 17.84, 17.84, 18.96, 83.9, 110, 1401, 488 },
  { "least_outstanding", 0.25, 1.4, 25.35, 24.33, 26.02, 92.0, 91, 1289, 242 },
  { "least_outstanding", 1, 0, 7.84, 7.71, 8.16, 56.4, 469, 2130, 1345 },
  { "least_outstanding", 1, 1, 13.49, 13.31, 13.74, 74.4, 391, 1709, 781 },
  { "least_outstanding", 1, 1.4, 21.01, 20.48, 21.27, 87.7, 99, 1402, 375 },
  { "least_outstanding", 3, 0, 7.57, 7.50, 7.75, 54.1, 567, 2004, 1420 },
  { "least_outstanding", 3, 1, 11.76, 11.71, 11.94, 70.3, 408, 1759, 905 },
  { "least_outstanding", 3, 1.4, 19.69, 19.59, 19.97, 86.2, 108, 1425, 419 },
  { "least_outstanding", 8, 0, 7.09, 7.02, 7.44, 53.4, 624, 2144, 1439 },
  { "least_outstanding", 8, 1, 11.05, 10.81, 11.20, 67.4, 415, 1851, 996 },
  { "least_outstanding", 8, 1.4, 19.44, 19.03, 19.45, 85.3, 110, 1417, 447 },
  { "session_affinity", 0.25, 0, 34.37, 30.11, 34.77, 99.7, 85, 153, 10 },
  { "session_affinity", 0.25, 1, 8.83, 8.83, 24.61, 98.8, 94, 435, 38 },
  { "session_affinity", 0.25, 1.4, 7.36, 5.15, 13.86, 98.5, 150, 527, 45 },
  { "session_affinity", 1, 0, 8.99, 8.19, 10.24, 76.6, 392, 1622, 722 },
  { "session_affinity", 1, 1, 16.96, 12.56, 19.07, 91.2, 117, 980, 267 },
  { "session_affinity", 1, 1.4, 11.23, 10.89, 13.48, 96.1, 117, 645, 117 },
  { "session_affinity", 3, 0, 9.32, 8.31, 9.58, 67.6, 426, 1614, 1003 },
  { "session_affinity", 3, 1, 12.53, 12.53, 14.35, 85.2, 308, 1254, 452 },
  { "session_affinity", 3, 1.4, 6.44, 5.92, 11.84, 94.5, 169, 716, 168 },
  { "session_affinity", 8, 0, 8.83, 8.55, 9.50, 64.3, 435, 1924, 1104 },
  { "session_affinity", 8, 1, 13.49, 12.82, 15.09, 81.8, 362, 1381, 555 },
  { "session_affinity", 8, 1.4, 10.69, 6.77, 11.12, 93.8, 133, 750, 187 },
  { "bounded_session_affinity", 0.25, 0, 31.86, 31.43, 32.87, 97.0, 88, 557, 92 },
  { "bounded_session_affinity", 0.25, 1, 30.55, 30.46, 30.63, 96.1, 90, 688, 118 },
  { "bounded_session_affinity", 0.25, 1.4, 32.93, 32.35, 33.75, 97.6, 88, 641, 73 },
  { "bounded_session_affinity", 1, 0, 11.37, 11.19, 11.42, 68.8, 422, 1893, 964 },
  { "bounded_session_affinity", 1, 1, 19.80, 19.15, 20.22, 86.0, 120, 1357, 428 },
  { "bounded_session_affinity", 1, 1.4, 26.77, 26.57, 28.35, 94.1, 94, 948, 179 },
  { "bounded_session_affinity", 3, 0, 9.44, 9.43, 9.56, 62.6, 438, 1859, 1160 },
  { "bounded_session_affinity", 3, 1, 16.01, 15.80, 16.54, 80.2, 355, 1487, 602 },
  { "bounded_session_affinity", 3, 1.4, 25.48, 25.20, 26.77, 92.8, 95, 971, 218 },
  { "bounded_session_affinity", 8, 0, 8.80, 8.58, 9.04, 59.9, 447, 2127, 1238 },
  { "bounded_session_affinity", 8, 1, 14.69, 14.27, 14.80, 77.1, 387, 1655, 700 },
  { "bounded_session_affinity", 8, 1.4, 24.92, 24.92, 25.37, 92.0, 96, 1017, 242 },
  { "prefix_affinity", 0.25, 0, 32.04, 32.03, 34.02, 97.4, 86, 1013, 79 },
  { "prefix_affinity", 0.25, 1, 34.43, 34.20, 34.94, 98.3, 85, 495, 53 },
  { "prefix_affinity", 0.25, 1.4, 34.79, 34.67, 35.70, 98.4, 85, 458, 48 },
  { "prefix_affinity", 1, 0, 14.94, 14.72, 15.10, 77.5, 407, 1440, 695 },
  { "prefix_affinity", 1, 1, 23.51, 23.02, 23.66, 90.1, 107, 1065, 301 },
  { "prefix_affinity", 1, 1.4, 30.45, 30.31, 31.42, 96.1, 88, 735, 117 },
  { "prefix_affinity", 3, 0, 11.61, 11.54, 11.64, 68.6, 429, 1504, 972 },
  { "prefix_affinity", 3, 1, 18.97, 18.85, 19.07, 84.8, 339, 1215, 464 },
  { "prefix_affinity", 3, 1.4, 28.79, 28.49, 29.31, 94.8, 92, 778, 157 },
  { "prefix_affinity", 8, 0, 10.68, 10.46, 10.70, 65.6, 437, 1551, 1062 },
  { "prefix_affinity", 8, 1, 16.91, 16.81, 17.05, 81.5, 373, 1412, 565 },
  { "prefix_affinity", 8, 1.4, 28.04, 27.73, 28.27, 94.1, 93, 783, 179 },
  { "prefix_affinity /off", 0.25, 0, 35.16 },
  { "prefix_affinity /off", 0.25, 1, 31.70 },
  { "prefix_affinity /off", 0.25, 1.4, 16.89 },
  { "prefix_affinity /off", 1, 0, 8.13 },
  { "prefix_affinity /off", 1, 1, 20.80 },
  { "prefix_affinity /off", 1, 1.4, 19.25 },
  { "prefix_affinity /off", 3, 0, 5.97 },
  { "prefix_affinity /off", 3, 1, 16.94 },
  { "prefix_affinity /off", 3, 1.4, 21.81 },
  { "prefix_affinity /off", 8, 0, 6.51 },
  { "prefix_affinity /off", 8, 1, 15.98 },
  { "prefix_affinity /off", 8, 1.4, 23.66 },
  { "prefix_hash", 0.25, 0, 34.34 },
  { "prefix_hash", 0.25, 1, 32.87 },
  { "prefix_hash", 0.25, 1.4, 32.69 },
  { "prefix_hash", 1, 0, 12.11 },
  { "prefix_hash", 1, 1, 21.22 },
  { "prefix_hash", 1, 1.4, 28.45 },
  { "prefix_hash", 3, 0, 9.70 },
  { "prefix_hash", 3, 1, 16.93 },
  { "prefix_hash", 3, 1.4, 26.64 },
  { "prefix_hash", 8, 0, 9.12 },
  { "prefix_hash", 8, 1, 14.86 },
  { "prefix_hash", 8, 1.4, 25.42 },
}

---@class kvr.Measured
---@field goodput number requests/s
---@field low number? of the repetitions
---@field high number?
---@field cached number? % of prompt tokens
---@field ttft_p50_ms number?
---@field ttft_p99_ms number?
---@field recomputed number? prompt tokens a request

---@param policy string label
---@param working_set number
---@param skew number
---@return kvr.Measured? # nil: that was not measured
function M.at(policy, working_set, skew)
  for _, row in ipairs(rows) do
    if row[1] == policy and row[2] == working_set and row[3] == skew then
      return {
        goodput = row[4], low = row[5], high = row[6], cached = row[7], ttft_p50_ms = row[8],
        ttft_p99_ms = row[9], recomputed = row[10],
      }
    end
  end
end

-- Goodput over load at working set 1 without skew, cells of 90 s, an earlier day: by users of a
-- closed loop (c) and by requests a second of an open one (a). Of three runs where two were usable
-- their lower one.
local loads = { "c1", "c4", "c8", "c16", "c32", "c64", "c128", "c256", "a2", "a4", "a6", "a8",
  "a10", "a12", "a14", "a16", "a20" }
local over_load = {
  round_robin = { 0.62, 2.88, 3.86, 4.06, 3.29, 2.63, 1.33, 0.05, 1.74, 3.45, 3.90, 0.06, 0, 0, 0,
    0, 0 },
  least_outstanding = { 0.62, 3.54, 4.97, 8.22, 7.26, 5.56, 0.03, 0, 1.74, 3.37, 3.48, 0, 0, 0, 0,
    0, 0 },
  session_affinity = { 1.22, 4.15, 6.81, 9.59, 9.90, 7.08, 4.17, nil, 2.00, 4.00, 5.98, 7.63, 8.80,
    9.59, 8.05, 3.96, 3.12 },
}

---@param policy string label
---@param load string "c32", "a6"
---@return number? # goodput
function M.at_load(policy, load)
  for i, name in ipairs(loads) do
    if name == load then return over_load[policy] and over_load[policy][i] end
  end
end

return M
