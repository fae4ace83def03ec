# Starts WSL and forwards a port of Windows to its SSH server; after each start of Windows WSL has
# another address. -Register runs it at each of your logins. -Setup first makes Ubuntu with WSL 2 and
# a GPU box of it, and can run twice. It asks for an administrator. It was never run on Windows.
param(
    [string]$Distribution = "Ubuntu-24.04",
    # As in Windows: under another one nvidia-smi fails (github.com/microsoft/WSL/issues/9185).
    [string]$User = $env:USERNAME,
    [int]$Port = 2222,
    [switch]$Setup,
    [switch]$Register
)
$ErrorActionPreference = "Stop"
$again = "-ExecutionPolicy Bypass -File `"$PSCommandPath`" -Distribution $Distribution -User $User -Port $Port"

$me = [Security.Principal.WindowsPrincipal][Security.Principal.WindowsIdentity]::GetCurrent()
if (-not $me.IsInRole([Security.Principal.WindowsBuiltInRole]::Administrator)) {
    if ($Setup) { $again += " -Setup" }
    if ($Register) { $again += " -Register" }
    Start-Process powershell.exe -Verb RunAs -ArgumentList "-NoExit $again"
    exit
}
if ($Setup) {
    wsl -d $Distribution -u root -e true
    if ($LASTEXITCODE) {
        wsl --install --no-launch -d $Distribution
        wsl -d $Distribution -u root -e true
        if ($LASTEXITCODE) { throw "WSL does not start $Distribution yet: restart Windows, then run this again" }
    }
    wsl -d $Distribution -u root -e id $User
    if ($LASTEXITCODE) {
        wsl -d $Distribution -u root -e useradd --create-home --shell /bin/bash --groups sudo $User
        if ($LASTEXITCODE) { throw "Ubuntu takes no user ${User}: give another name with -User NAME" }
        wsl -d $Distribution -u root -e passwd $User
        # systemd starts the SSH server and Ray.
        wsl -d $Distribution -u root -e sh -c "printf '[boot]\nsystemd=true\n[user]\ndefault=$User\n' > /etc/wsl.conf"
        wsl --terminate $Distribution
    }
    $box = wsl -d $Distribution -u $User -e wslpath -a $PSScriptRoot.Replace("\", "/")
    wsl -d $Distribution -u $User -e bash "$box/setup_ubuntu.sh"
    if ($LASTEXITCODE) { throw "setup_ubuntu.sh failed: follow its last line, then run this again" }
}

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
    $action = New-ScheduledTaskAction -Execute "powershell.exe" -Argument $again
    $trigger = New-ScheduledTaskTrigger -AtLogOn -User $env:USERNAME
    Register-ScheduledTask -TaskName "WSL SSH" -Action $action -Trigger $trigger -RunLevel Highest -Force
}
Write-Output "SSH: port $Port of this machine leads to ${address}:22; in config/ray_config.yaml set ssh_port: $Port"
