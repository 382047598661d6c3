# Completion of nodewright for fish 3.2 and later: nodewright completion fish | source
function __nodewright_words
    set -l word (commandline -ct)
    set -l prefix (string match -r -- '^--[^=]+=' $word)
    set -l begun (string replace -- "$prefix" '' $word)
    set -l before (commandline -opc)
    for line in (nodewright __complete $before[2..-1] "$word" 2>/dev/null)
        switch $line
            case ':16'
                __fish_complete_directories "$begun" | string replace -r -- '^' "$prefix"
            case ':0'
                __fish_complete_path "$begun" | string replace -r -- '^' "$prefix"
            case ':*'
            case '*'
                echo -- "$prefix$line"
        end
    end
end
complete -c nodewright -f -a '(__nodewright_words)'
