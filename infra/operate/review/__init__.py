"""`python -m infra.operate.review -s STACK PLAN`: a planned change as a page for a reviewer."""
