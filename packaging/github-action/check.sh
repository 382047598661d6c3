#!/usr/bin/env bash
# The commands of the action; its inputs are variables of the environment. All files are read, not only those that changed:
# limit ranges and quotas apply to the pods of other files.
# The workspace belongs to the author of the change: no name of a file is expanded, no Python is imported from there (-I),
# no link is written through.
set -uf
if [ "$ONLY_CHANGED" = true ] && [ -n "${BASE:-}" ] &&
  changed=$(git -c core.fsmonitor=false diff --no-ext-diff --no-textconv --name-only --end-of-options "$BASE" -- \
    '*.yaml' '*.yml' '*.json' 2>/dev/null) && [ -z "$changed" ]; then
  echo "no YAML or JSON file is changed"
  exit 0
fi
python=$RUNNER_TEMP/nodewright/bin/python
if [ -n "$SARIF" ]; then
  "$python" -I -c 'import os, sys; here = os.path.realpath(os.curdir); place = os.path.normpath(os.path.join(here, sys.argv[1]))
sys.exit(os.path.realpath(place) != place)' "$SARIF" || {
    echo "::error title=nodewright::the directory for SARIF files is a link, or below one"
    exit 2
  }
  mkdir -p -- "$SARIF" || exit 1
fi
node=()
[ -z "$NODE" ] || node=("--node=$NODE")
worst=0
run() {
  "$python" -I -m nodewright "$@"
  code=$?
  [ "$code" -le "$worst" ] || worst=$code
}
for command in $COMMANDS; do
  case $command in
    lint) run lint -R "--filename=$PATHS" ${node[@]+"${node[@]}"} "--fail-on=$FAIL_ON" -o github ;;
    quota) run quota -R "--filename=$PATHS" -o github ;;
    admit) run admit -R "--filename=$PATHS" ${node[@]+"${node[@]}"} -o github ;;
    *)
      echo "::error title=nodewright::unknown command; lint, quota and admit exist"
      exit 2
      ;;
  esac
  if [ -n "$SARIF" ] && [ "$command" != admit ]; then
    arguments=()
    [ "$command" != lint ] || arguments=(${node[@]+"${node[@]}"} --fail-on=never)
    rm -f -- "$SARIF/$command.sarif" || exit 1
    "$python" -I -m nodewright "$command" -R "--filename=$PATHS" ${arguments[@]+"${arguments[@]}"} -o sarif \
      > "$SARIF/$command.sarif" || true
  fi
done
exit "$worst"
