-- The audit trail's oldest.
delete from operator_actions where id in (select id from operator_actions where at < %(until)s order by at limit %(limit)s)
