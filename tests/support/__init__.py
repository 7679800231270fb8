"""What tests share: a server, databases from a template, a proxy that cuts, replicas as processes."""
