-- The laboratory: what an experiment file needs, under the name it uses.
--
--   local lab = require("kvroute")
local experiment = require("kvroute.experiment")
local metric = require("kvroute.metric")
local settings = require("kvroute.settings")

return {
  experiment = experiment.new,
  settings = settings.declare,
  figure = require("kvroute.figure_data"),
  metric = metric.find,
  fleet = require("kvroute.fleet"),
  workload = require("kvroute.workload"),
  router = require("kvroute.router"),
  report = require("kvroute.report"),
  stats = require("kvroute.stats"),
  table = require("kvroute.table"),
}
