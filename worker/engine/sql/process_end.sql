-- A process that ended as it should.
delete from processes where id = %(id)s::uuid
