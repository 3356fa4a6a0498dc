-- Takes the marks away that no one has renewed since they were read. Locked in learner order, as marks are made.
delete from learner_dirty
where learner_id in (
    select d.learner_id
    from learner_dirty d
    join unnest(%(ids)s::uuid[], %(seqs)s::bigint[]) as seen (learner_id, seq) on seen.learner_id = d.learner_id and seen.seq = d.seq
    order by d.learner_id
    for update of d
)
