-- One line of the audit trail, in the transaction of the action.
insert into operator_actions (operator, action, target, result, reason, details, address)
values (%(operator)s, %(action)s, %(target)s, %(result)s, %(reason)s::text, %(details)s::jsonb, %(address)s::text)
