"""Resources of pulumi-command: commands and files on other machines, by SSH."""
