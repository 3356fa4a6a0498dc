-- Processes that died, or ended, and were not seen since.
delete from processes where id in (select id from processes where seen_at < %(until)s limit %(limit)s)
