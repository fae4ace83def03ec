# Starts WSL and forwards a port of Windows to its SSH server. Run it as administrator after each
# start of Windows: WSL has another address then. -Register runs it at each of your logins.
param(
    [string]$Distribution = "Ubuntu-24.04",
    # As in Windows: under another one nvidia-smi fails (github.com/microsoft/WSL/issues/9185).
    [string]$User = $env:USERNAME,
    [int]$Port = 2222,
    [switch]$Register
)
$ErrorActionPreference = "Stop"

# WSL ends with its last program, so one stays.
Start-Process wsl -WindowStyle Hidden -ArgumentList "-d", $Distribution, "-u", $User, "-e", "sleep", "infinity"
$address = ((wsl -d $Distribution -u $User -e hostname -I) -split "\s+")[0]
if (-not $address) { throw "WSL $Distribution has no address: does 'wsl -d $Distribution' start?" }
netsh interface portproxy delete v4tov4 "listenport=$Port" | Out-Null
netsh interface portproxy add v4tov4 "listenport=$Port" connectport=22 "connectaddress=$address"
if (-not (Get-NetFirewallRule -DisplayName "WSL SSH" -ErrorAction SilentlyContinue)) {
    New-NetFirewallRule -DisplayName "WSL SSH" -Direction Inbound -Protocol TCP -LocalPort $Port -Action Allow
}
if ($Register) {
    $arguments = "-ExecutionPolicy Bypass -File `"$PSCommandPath`" -Distribution $Distribution -User $User -Port $Port"
    $action = New-ScheduledTaskAction -Execute "powershell.exe" -Argument $arguments
    $trigger = New-ScheduledTaskTrigger -AtLogOn -User $env:USERNAME
    Register-ScheduledTask -TaskName "WSL SSH" -Action $action -Trigger $trigger -RunLevel Highest -Force
}
Write-Output "SSH: port $Port of this machine leads to ${address}:22"
