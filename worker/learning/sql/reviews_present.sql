-- What is kept under these ids.
select id, card_id, rating from reviews where learner_id = %(learner_id)s and id = any (%(ids)s::uuid[])
