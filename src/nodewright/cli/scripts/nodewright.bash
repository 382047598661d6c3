# Completion of nodewright for bash 4.4 and later: source <(nodewright completion bash)
_nodewright() {
    local line word=${COMP_WORDS[COMP_CWORD]} directive=0
    local -a found=()
    COMPREPLY=()
    while IFS= read -r line; do
        if [[ $line == :* ]]; then
            directive=${line#:}
        else
            COMPREPLY+=("${line%%$'\t'*}")
        fi
    done < <(nodewright __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    (( directive & 4 )) && return
    [[ $word == "=" ]] && word=""
    if (( ${#COMPREPLY[@]} == 0 && directive == 0 )); then
        compopt -o default
        return
    fi
    compopt -o filenames
    if (( directive & 16 )); then
        mapfile -t found < <(compgen -d -- "$word")
    else
        mapfile -t found < <(compgen -f -- "$word")
    fi
    COMPREPLY+=("${found[@]}")
}
complete -o nosort -F _nodewright nodewright
