"""Machines of Lambda Cloud: its API, and Pulumi resources on top."""

API_KEY = "lambdaApiKey"  # the secret setting
