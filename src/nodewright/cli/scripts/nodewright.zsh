#compdef nodewright
# Completion of nodewright for zsh: source <(nodewright completion zsh), or as _nodewright in a directory of $fpath
_nodewright() {
    local line directive=0
    local -a words_found lines
    lines=("${(@f)$(nodewright __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    for line in $lines; do
        if [[ $line == :* ]]; then
            directive=${line#:}
        elif [[ $line == *$'\t'* ]]; then
            words_found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
        else
            words_found+=("${line//:/\\:}")
        fi
    done
    compset -P '--*='
    (( ${#words_found} )) && _describe -V 'nodewright' words_found
    if (( directive & 16 )); then
        _path_files -/
    elif (( ! (directive & 4) )); then
        _files
    fi
}
if [[ ${zsh_eval_context[-1]} == loadautofunc ]]; then
    _nodewright "$@"
else
    compdef _nodewright nodewright
fi
