"""Every read of the web process, a module a page. Each is bounded, and changes nothing but a session's last sign of life."""
