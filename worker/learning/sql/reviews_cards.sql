-- Which of these cards exist.
select id from cards where id = any (%(card_ids)s::uuid[])
