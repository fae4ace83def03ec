@echo off
rem Double-click this if the box does not answer: it starts WSL and forwards the port again.
powershell -NoProfile -ExecutionPolicy Bypass -File "%~dp0wsl.ps1"
if errorlevel 1 pause
