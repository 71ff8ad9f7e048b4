-- The settings of a configuration file: names, types, ranges, defaults and what they mean.
return {}
