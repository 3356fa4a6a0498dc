"""Every read of the web process, a module a page. Each takes a session, is bounded, and changes nothing but a session's last sign of life."""
