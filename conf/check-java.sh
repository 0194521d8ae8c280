#!/bin/sh
# Prints one line and exits with status 2 if Spark would not find a Java version that it supports.
# Checks JAVA_HOME if it is set, else the PATH, like Spark. Needs only a POSIX shell.

java=${JAVA_HOME:+$JAVA_HOME/bin/}java
answer=$("$java" -version 2>&1)

case $answer in
*'version "'*)
    version=${answer#*version \"}
    version=${version%%\"*}
    case ${version%%[!0-9]*} in 17 | 21) exit 0 ;; esac
    found="Java $version"
    ;;
*) found="none" ;;
esac

echo "spark-log needs Java 17 or 21, found $found (${JAVA_HOME:+JAVA_HOME=}${JAVA_HOME:-java on the PATH}):" \
    "install openjdk-17-jre-headless (Debian, Ubuntu), java-17-openjdk-headless (Fedora)" \
    "or run 'brew install openjdk@17' (macOS)" >&2
exit 2
