#!/usr/bin/env bash
# The commands of the action; its inputs are variables of the environment. All files are read, not only those that changed:
# limit ranges and quotas apply to the pods of other files.
set -u
if [ "$ONLY_CHANGED" = true ] && [ -n "${BASE:-}" ] &&
  changed=$(git diff --name-only "$BASE" -- '*.yaml' '*.yml' '*.json' 2>/dev/null) && [ -z "$changed" ]; then
  echo "no YAML or JSON file is changed"
  exit 0
fi
node=()
[ -z "$NODE" ] || node=(--node "$NODE")
worst=0
run() {
  "$@"
  code=$?
  [ "$code" -le "$worst" ] || worst=$code
}
for command in $COMMANDS; do
  case $command in
    lint) run nodewright lint -R -f "$PATHS" "${node[@]}" --fail-on "$FAIL_ON" -o github ;;
    quota) run nodewright quota -R -f "$PATHS" -o github ;;
    admit) run nodewright admit -R -f "$PATHS" "${node[@]}" -o github ;;
    *)
      echo "::error title=nodewright::unknown command $command"
      exit 2
      ;;
  esac
  if [ -n "$SARIF" ] && [ "$command" != admit ]; then
    mkdir -p "$SARIF"
    arguments=()
    [ "$command" != lint ] || arguments=("${node[@]}" --fail-on never)
    nodewright "$command" -R -f "$PATHS" "${arguments[@]}" -o sarif > "$SARIF/$command.sarif" || true
  fi
done
exit "$worst"
