-- Kinds that keep their completed runs for a number of days only, retired ones too.
select kind, history_days from job_kinds where history_days is not null and kind >= %(from)s order by kind
