@echo off
rem Double-click this once: it makes a GPU box of this Windows 11, with WSL 2. See wsl.ps1 next to it.
powershell -NoProfile -ExecutionPolicy Bypass -File "%~dp0wsl.ps1" -Setup -Register
if errorlevel 1 pause
