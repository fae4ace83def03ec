"""`python -m infra.review -s STACK PLAN`: a planned change as a page that a reviewer decides on."""
