"""The functions of selectors where no recorded selector uses them: results, and the texts of failures."""

import pytest

from nodewright.engine.core.claims.cel import SelectorDevice, SelectorError, compile_selector

DEVICE = SelectorDevice("d", {"s": "x", "n": 7})


def outcome(expression: str) -> bool | str:
    """The result, or why there is none."""
    selector = compile_selector(expression)
    if selector.error is not None:
        return selector.error
    try:
        return selector.matches(DEVICE)
    except SelectorError as error:
        return str(error)


GO_ADDRESSES = {
    "": "unable to parse IP",
    "%eth0": "missing IPv6 address",
    "1.2.3": "IPv4 address too short",
    "1.2.3.4.5": "IPv4 address too long",
    "01.2.3.4": "IPv4 field has octet with leading zero",
    "256.1.1.1": "IPv4 field has value >255",
    "1..2.3": 'IPv4 field must have at least one digit (at ".2.3")',
    "a.b": 'unexpected character (at "a.b")',
    "::1%": "zone must be a non-empty string",
    "12345::": 'each group must have 4 or less digits (at "12345::")',
    "g::": 'each colon-separated field must have at least one digit (at "g::")',
    "1:1.2.3.4": 'embedded IPv4 address must replace the final 2 fields of the address (at "1.2.3.4")',
    "::1:2:3:4:5:6:7:1.2.3.4": (
        'too many hex fields to fit an embedded IPv4 at the end of the address (at "1.2.3.4")'
    ),
    "1::1.2.3": "IPv4 address too short",
    "1-::": 'unexpected character, want colon (at "-::")',
    "1:": 'colon must be followed by more characters (at ":")',
    "1::2::3": 'multiple :: in address (at ":3")',
    "1:2:3:4:5:6:7:8:9": 'trailing garbage after address (at "9")',
    "1:2": "address string too short",
    "1:2:3:4:5:6:7:8::": "the :: must expand to at least one field of zeros",
    "1:2:3:4:5:6::1.2.3.4": "the :: must expand to at least one field of zeros",
}


@pytest.mark.parametrize(("text", "problem"), GO_ADDRESSES.items())
def test_what_is_wrong_with_an_address_is_said_in_the_words_of_go(text: str, problem: str) -> None:
    go = f'ParseAddr("{text}"): {problem}'
    assert outcome(f"isIP('{text}')") is False
    assert outcome(f"ip('{text}').family() == 4") == (
        f'IP Address "{text}" parse error during conversion from string: {go}'
    )
    assert str(outcome(f"cidr('{text}/8').prefixLength() == 8")).endswith(f'("{text}/8"): {go}')
    assert outcome(f"cidr('10.0.0.0/8').containsIP('{text}')") == "no such overload"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1.2.3.4", "no '/'"),
        ("1.2.3.4/08", 'bad bits after slash: "08"'),
        ("1.2.3.4/33", "prefix length out of range"),
        ("::%e/8", "IPv6 zones cannot be present in a prefix"),
    ],
)
def test_what_is_wrong_with_a_prefix_is_said_in_the_words_of_go(text: str, problem: str) -> None:
    assert str(outcome(f"cidr('{text}').prefixLength() == 8")).endswith(f'ParsePrefix("{text}"): {problem}')


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty url"),
        ("a", "invalid URI for request"),
        (":a", "missing protocol scheme"),
        ("http://[::1", "missing ']' in host"),
        ("http://a[::1]", "invalid IP-literal"),
        ("http://[1.2.3.4]", "invalid IP-literal"),
        ("http://[zz]", 'invalid host: ParseAddr("zz"): unable to parse IP'),
        ("http://[::1]x", 'invalid port "x" after host'),
        ("http://a:1:2", 'invalid port ":1:2" after host'),
        ("http://a%20b", 'invalid URL escape "%20"'),
        ("http://a b", 'invalid character " " in host name'),
        ("/a%zz", 'invalid URL escape "%zz"'),
    ],
)
def test_what_is_wrong_with_a_url_is_said_in_the_words_of_go(text: str, problem: str) -> None:
    assert outcome(f"isURL('{text}')") is False
    assert str(outcome(f"url('{text}').getHost() == ''")).endswith(f'parse "{text}": {problem}')


@pytest.mark.parametrize(
    "expression",
    [
        "'abcabc'.indexOf('c', 3) == 5 && 'abcabc'.lastIndexOf('b', 3) == 1 && 'ab'.indexOf('', 1) == 1",
        "[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2 && [1].indexOf(2) == -1 && 'a'.indexOf('b', 9) == -1",
        "'a-b-c'.split('-', 2) == ['a', 'b-c'] && 'ab'.split('') == ['a', 'b'] && 'ab'.split('', 1) == ['ab']",
        "'a'.split('-', 0) == [] && 'aaa'.replace('a', 'b', 2) == 'bba' && ['a', 'b'].join() == 'ab'",
        r"strings.quote('a\n\"') == '\"a\\n\\\"\"' && '  a\t'.trim() == 'a' && 'abc'.charAt(3) == ''",
        "'%s %s %s'.format([[1, 'a', 2.5], {'k': null}, duration('90s')]) == '[1, \"a\", 2.500000] {\"k\":null} 90s'",
        "'%X %b %o %x'.format(['az', true, 8, -255]) == '617A 1 10 -ff' && '%.16e'.format([0.0015]) == '  1.500000\\u00d710⁻⁰³'",
        "'%s'.format([[duration('1s'), b'a']]) == '[duration(\"1s\"), b\"a\"]' && '%%'.format([]) == '%'",
        "[1, 2, 3].slice(1, 2) == [2] && [[[1]]].flatten(2) == [1] && [2, 1].reverse() == [1, 2]",
        "[1, 2].isSorted() && ![2, 1].isSorted() && [duration('1s'), duration('2s')].sum() == duration('3s')",
        "[3.5, 1.0].min() == 1.0 && ['a', 'b'].max() == 'b' && [].sum() == 0",
        "sets.intersects([1], [2, 1]) && !sets.contains([1], [2]) && optional.unwrap([optional.of(1), optional.none()]) == [1]",
        "optional.ofNonZeroValue('') == optional.none() && optional.ofNonZeroValue(duration('1s')).hasValue()",
        "[?optional.of(1), 2, ?optional.none()] == [1, 2] && {?'a': optional.none(), 'b': 1} == {'b': 1}",
        "[optional.none(), optional.of(3)].unwrapOpt().first().optFlatMap(x, optional.of(x + 1)).orValue(0) == 4",
        "{'a': {'b': 1}}.?a.?b == optional.of(1) && !{'a': {'b': 1}}.?c.b.hasValue() && has({'a': 1}.a)",
        "double('0x1p4') == 16.0 && double('-0X_1.8P+1') == -3.0 && double('1_000.5e1_0') == 10005e9 && double('.5') == 0.5",
        "!(semver('1.0.0') in {}) && !(dyn(b'a') in device.attributes['d']) && !has(optional.none().m) && !has({'a': {'b': 1}}.?b.c)",
        "!optional.ofNonZeroValue(timestamp('0001-01-01T00:00:00Z')).hasValue() && optional.ofNonZeroValue(timestamp(0)).hasValue()",
        "'%s'.format([dyn([int, double('nan'), true, timestamp(0)])]) == '[int, \"NaN\", true, timestamp(\"1970-01-01T00:00:00Z\")]'",
        "'%f %e'.format([double('inf'), double('nan')]) == '∞    NaN'",
        "{1: 'a', 2: 'b'}[dyn(2u)] == 'b' && {'a': 1}['a'] == 1 && [1, 2][dyn(1.0)] == 2 && dyn(1.0) in {1: 2}",
        "timestamp('2024-02-29T23:59:59.250Z') + duration('1s') == timestamp('2024-03-01T00:00:00.25Z')",
        "timestamp('2024-03-01T00:00:00Z') - timestamp('2024-02-29T00:00:00Z') == duration('24h')",
        "timestamp('2024-02-29T12:34:56.789Z').getMilliseconds('02:00') == 789 && timestamp(0).getDayOfWeek() == 4",
        "timestamp('2024-02-29T12:34:56Z').getHours() == 12 && timestamp('2024-02-29T12:34:56Z').getDate('12:00') == 1",
        "string(timestamp(0)) == '1970-01-01T00:00:00Z' && string(duration('1.5s')) == '1.5s' && int(duration('1us')) == 1000",
        "duration('-61s').getMinutes() == -1 && duration('2s') - duration('1s') > duration('0')",
        "uint('7') == 7u && int(7u) == 7 && double(7u) == 7.0 && uint(7.9) == 7u && int(-7.9) == -7 && string(7u) == '7'",
        "bool('T') && !bool('0') && string(b'\\xc3\\xa9') == 'é' && bytes('é') == b'é' && string(true) == 'true'",
        "string(1.0) == '1' && string(123456.0) == '123456' && string(1.5e-7) == '1.5e-07' && string(-0.001) == '-0.001'",
        "1.0 / 0.0 > 1e300 && -1.0 / 0.0 < -1e300 && double('inf') == 1.0 / 0.0 && double('nan') != double('nan')",
        "semver('v1.02', true) == semver('1.2.0') && isSemver('1.2', true) && !isSemver('1.2') && !isSemver('1.2-a', true)",
        "semver('1.0.0-a.1').isLessThan(semver('1.0.0-a.b')) && semver('1.0.0-1').compareTo(semver('1.0.0-2')) == -1",
        "sign(quantity('-1')) == -1 && quantity('1k').asInteger() == 1000 && quantity('1').sub(2).asApproximateFloat() < 0.0",
        "isIP('::1') && !isIP('1.2.3') && !isIP('::ffff:1.2.3.4') && ip.isCanonical('::1') && !ip.isCanonical('0::1')",
        "ip('224.0.0.1').isLinkLocalMulticast() && ip('8.8.8.8').isGlobalUnicast() && ip('0.0.0.0').isUnspecified()",
        "string(cidr('10.1.2.3/8').masked()) == '10.0.0.0/8' && cidr('::/0').prefixLength() == 0 && !isCIDR('1.2.3.4')",
        "cidr('10.0.0.0/8').ip() == ip('10.0.0.0') && cidr('10.0.0.0/8').containsIP(ip('10.9.9.9'))",
        "url('https://u@a:80/p?q=1').getHost() == 'a:80' && url('https://a:80/p').getPort() == '80' && isURL('/p')",
        "url('https://a/%20b').getEscapedPath() == '/%20b' && url('HTTPS://a').getScheme() == 'https' && !isURL('a b')",
        "url('http://[::1%25e]:8/').getPort() == '8' && isURL('ftp://h:1:2') && url('mailto:a').getEscapedPath() == ''",
        "url('/a b').getEscapedPath() == '/a%20b' && url('/?a=%zz&b;c&d=1').getQuery() == {'d': ['1']} && isURL('*')",
        "format.byte().validate('').hasValue() && format.uri().validate('').value() == ['parse \"\": empty url']",
        "format.date().validate('2023-02-29').hasValue() && !format.date().validate('2024-02-29').hasValue()",
        "format.date().validate('2024-04-31').hasValue() && format.datetime().validate('2024-02-29T24:00:00Z').hasValue()",
        "!format.datetime().validate('2024-02-29t23:59:59,1+01:00').hasValue() && format.date().validate('1900-02-29').hasValue()",
        "!format.uuid().validate('123e4567-e89b-12d3-a456-426614174000').hasValue() && format.date().validate('x').hasValue()",
        "format.named('dns1035LabelPrefix').value().validate('a-') == optional.none() && format.uri().validate('').hasValue()",
        "type(1) == int && type(type(1)) == type && type([]) == list && type(optional.none()) == optional_type",
        "b'a' < b'b' && 'a' + 'b' == 'ab' && b'a' + b'b' == b'ab' && [1] + [2] == [1, 2] && 2u * 3u == 6u && 7u / 2u == 3u",
        "1 < 2u && 2u > 1.5 && dyn(9007199254740993) == 9007199254740992.0 && 9007199254740993 in [9007199254740993]",
        "{'a': 1, 'b': 2}.all(k, v, v > 0) && [5, 6].existsOne(i, v, i == 1) && {'a': 1}.exists(k, k == 'a')",
        "[5, 6].transformList(i, v, i > 0, v) == [6] && {'a': 1}.transformMap(k, v, v + 1) == {'a': 2}",
        "google.protobuf.Timestamp == type(timestamp(0)) && !(dyn(null) == 1) && null == null && dyn(null) in [dyn(null)]",
    ],
)  # fmt: skip
def test_results(expression: str) -> None:
    assert outcome(expression) is True


@pytest.mark.parametrize(
    ("expression", "failure"),
    [
        ("'a'.substring(2, 1) == ''", "invalid substring range. start: 2, end: 1"),
        ("'a'.charAt(-1) == ''", "index out of range: -1"),
        ("'a'.indexOf('a', -1) == 0", "index out of range: -1"),
        ("'a'.lastIndexOf('a', -1) == 0", "index out of range: -1"),
        ("[1].slice(-1, 1) == []", "cannot slice(-1, 1), negative indexes not supported"),
        ("[1].slice(1, 0) == []", "cannot slice(1, 0), start index must be less than or equal to end index"),
        ("[1].slice(0, 2) == []", "cannot slice(0, 2), list is length 1"),
        ("[1].flatten(-1) == []", "level must be non-negative"),
        ("[1].flatten(-9223372036854775808) == []", "operation cancelled: actual cost limit exceeded"),
        ("dyn(1).flatten() == []", "no such overload: int.flatten()"),
        ("[dyn(1), dyn('a')].sort() == []", "list elements must have the same type"),
        ("[].map(x, 1).max() == 1", "max called on empty list"),
        ("[9223372036854775807, 1].sum() == 1", "integer overflow"),
        ("['a', 1].size() == 2", "ERROR: <input>:1:7: expected type 'string' but found 'int'"),
        ("'%d'.format([dyn('a')]) == ''", "error during formatting: decimal clause can only be used on integers"),
        ("'%d'.format([]) == ''", "index 0 out of range"),
        ("'%z'.format([1]) == ''", 'could not parse formatting clause: unrecognized formatting clause "z"'),
        ("'%.d'.format([1]) == ''", 'converting precision to integer: strconv.Atoi: parsing "": invalid syntax'),
        ("'%.99999999999999999999d'.format([1]) == ''", "value out of range"),
        ("dyn('%.').format([1]) == ''", "error while parsing precision: could not find end of precision specifier"),
        ("dyn('%').format([1]) == ''", "unexpected end of string"),
        ("dyn('%').format([]) == ''", "index 0 out of range"),
        ("'%'.format([]) == ''", "unexpected end of string"),
        ("dyn('%é').format([1]) == ''", 'could not parse formatting clause: unrecognized formatting clause "Ã"'),
        ("'%s'.format([device.attributes['d'].s]) == ''", "1:36: error during formatting: string clause can only"),
        ("'%s %d'.format(['a', 'b']) == ''", "1:22: error during formatting: decimal clause can only be used on integers"),
        ("'%d'.format([1, 2]) == ''", "1:12: too many arguments supplied to string.format (expected 1, got 2)"),
        ("'%d %d'.format([1]) == ''", "1:15: index 1 out of range"),
        ("'%s'.format([{'a': [quantity('1')]}]) == ''", "1:29: error during formatting: string clause can only"),
        ("'%s'.format([dyn([quantity('1')])]) == ''", "error during formatting: no formatting function for kubernetes.Quantity"),
        ("'%s'.format([dyn({1.5: 1})]) == ''", "error during formatting: no formatting function for map key of type double"),
        ("'%s'.format([b'\\xff']) == ''", 'could not convert argument "invalid UTF-8 in bytes, cannot convert to string"'),
        ("'%d'.format([1, 2]) == ''", "too many arguments supplied to string.format (expected 1, got 2)"),
        ("'%s'.format([[semver('1.0.0')]]) == ''", "1:21: error during formatting: string clause can only be used on"),
        ("semver('1.0.0').major == 1", "unexpected failed resolution of 'kubernetes.Semver'"),
        ("has(device.capacity['d'].q.x)", "1:4: unexpected failed resolution of 'kubernetes.Quantity'"),
        ("[1, 2][dyn(double('inf'))] == 1", "unsupported index value +Inf in list"),
        ("[1, 2][dyn(-9223372036854775808.0)] == 1", "unsupported index value -9.223372036854776e+18 in list"),
        ("[1, 2][dyn(null)] == 1", "program instantiation failed: invalid qualifier type: types.Null"),
        ("dyn(double('nan')) < dyn('a')", "NaN values cannot be ordered"),
        ("-dyn(true) == 1", "no such overload"),
        ("{b'a': 1}.size() == 1", "hash of unhashable type types.Bytes"),
        ("{semver('1.0.0'): 1}.size() == 1", "internal error: runtime error: hash of unhashable type cel.Semver"),
        ("dyn(b'a') in {'a': 1} && device.driver == ''", "internal error: runtime error: hash of unhashable type types.Bytes"),
        ("semver('A.1', true) == semver('1.0.0')", 'Invalid character(s) found in major number "A"'),
        ("semver('AB.1', true) == semver('1.0.0')", 'Invalid character(s) found in major number "0AB"'),
        ("double('1_.5') == 1.5", "type conversion error from 'string' to 'double'"),
        ("double('0x1') == 1.0", "type conversion error from 'string' to 'double'"),
        ("double('0x1p99999') == 1.0", "type conversion error from 'string' to 'double'"),
        ("device.?1 == 1", "unsupported ident kind"),
        ("has([1)", "1:5: invalid argument to has() macro"),
        ("has(device.driver ? 1)", "1:19: invalid argument to has() macro"),
        ("has(..a)", "1:0: invalid argument to has() macro"),
        ("[[1].all{1}].exists(x, true)", "mismatched input '{' expecting {']', ','}"),
        ("[1,2,", "missing ']' at '<EOF>'"),
        ("-(-9223372036854775807 - 1) == 0", "integer overflow"),
        ("1u - 2u == 0u", "unsigned integer overflow"),
        ("18446744073709551616u == 0u", "invalid uint literal"),
        ("1e999 == 1.0", "invalid double literal"),
        ("int(dyn(1e300)) == 1", "integer overflow"),
        ("uint(dyn(-1)) == 1u", "unsigned integer overflow"),
        ("string(dyn(b'\\xff')) == ''", "invalid UTF-8 in bytes, cannot convert to string"),
        ("bool(dyn('yes'))", "type conversion error from 'string' to 'bool'"),
        ("double(dyn('x')) == 1.0", "type conversion error from 'string' to 'double'"),
        ("duration('1x') == duration('1s')", "ERROR: <input>:1:10: invalid duration argument"),
        ("timestamp(dyn(253402300800)) == timestamp(0)", "timestamp overflow"),
        ("timestamp(0).getHours('Mars') == 0", "unknown time zone Mars"),
        ("timestamp(0).getHours('x:00') == 0", 'strconv.Atoi: parsing "x": invalid syntax'),
        ("semver('') == semver('1.0.0')", "Version string empty"),
        ("semver('1.0.0-01') == semver('1.0.0')", 'Numeric PreRelease version must not contain leading zeroes "01"'),
        ("semver('1.0.0-') == semver('1.0.0')", "Prerelease is empty"),
        ("semver('1.0.0-é') == semver('1.0.0')", 'Invalid character(s) found in prerelease "é"'),
        ("semver('1.0.0+') == semver('1.0.0')", "Build meta data is empty"),
        ("semver('1.0.0+_') == semver('1.0.0')", 'Invalid character(s) found in build meta data "_"'),
        ("semver('1..0') == semver('1.0.0')", 'strconv.ParseUint: parsing "": invalid syntax'),
        ("semver('99999999999999999999.0.0') == semver('1.0.0')", "value out of range"),
        ("semver('1-a', true) == semver('1.0.0')", "short version cannot contain PreRelease/Build meta data"),
        ("ip('::1%eth0') == ip('::1')", 'IP address "::1%eth0" with zone value is not allowed'),
        ("cidr('::ffff:1.2.3.4/96').prefixLength() == 0", 'IPv4-mapped IPv6 address "::ffff:1.2.3.4/96" is not allowed'),
        ("url('') == url('/')", 'URL parse error during conversion from string: parse "": empty url'),
        ("optional.none().value() == 1", "optional.none() dereference"),
        ("[?dyn(1)] == [1]", "cannot initialize optional list element from non-optional value 1"),
        ("{?'a': dyn(1)} == {}", "cannot initialize optional entry 'a' from non-optional value 1"),
        ("[1][dyn('a')] == 1", "unsupported index type 'string' in list"),
        ("[1][dyn(0.5)] == 1", "unsupported index value 0.5 in list"),
        ("{'a': 1}[dyn([])] == 1", "invalid qualifier type: *types.baseList"),
        ("dyn(1).all(i, v, true)", "unsupported comprehension range type: types.Int"),
        ("[1, 1].transformMapEntry(i, v, {v: i}) == {}", "insert failed: key 1 already exists"),
        ("dyn(1).isGreaterThan(quantity('1'))", "no such overload: isGreaterThan(int, kubernetes.Quantity)"),
        ("dyn('a') % 2 == 0", "no such overload"),
        ("dyn(1.5) % 2 == 0", "no such overload: _%_"),
        ("1.foo", "type 'int' does not support field selection"),
        ("'a'.all(x, true)", "expression of type 'string' cannot be range of a comprehension"),
        ("[1].all(x, x, true)", "duplicate variable name: x"),
        ("[1].all(__result__, true)", "iteration variable overwrites accumulator variable"),
        ("cel.bind(1, 2, true)", "cel.bind() variable names must be simple identifiers"),
        ("optional.of(1).optMap(1, 2) == 1", "optMap() variable name must be a simple identifier"),
        ("true.sortBy(x, x) == 1", "sortBy can only be applied to a list, identifier"),
        ("kubernetes.DRADevice{} == device", "undeclared reference to 'kubernetes.DRADevice'"),
        ("device.`driver` == ''", "unsupported syntax: '`'"),
        ("[1].exists(1, true)", "argument must be a simple name"),
        ("b'\\u0041' == b''", "unable to unescape string"),
        ("'\\ud800' == ''", "invalid unicode code point"),
        ("device.attributes['d'].n ? true : false", "no such overload"),
    ],
)  # fmt: skip
def test_failures(expression: str, failure: str) -> None:
    assert failure in str(outcome(expression))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("-double('1.5') == -1.5 && string(double('inf')) == '+Inf'", True),
        ("'abc'.lastIndexOf('') == 3 && [1].flatten(3) == [1]", True),
        ("type(1) == int && 'a' in {'a': 1}", True),
        ("dyn({'a': 1}) == dyn({'b': 1}) || dyn([1]) == dyn(1) || dyn(true) in dyn({1: 2})", False),
        (
            "null == duration('1s') || duration('1s') == null || null == optional.none() || timestamp(0) == null",
            False,
        ),
        ("[] == [1] || {} == {'a': 1} || [[], [1]] == [] || [optional.none(), optional.of(1)] == []", False),
        ("[].min() == 1", "min called on empty list"),
        ("dyn(double('nan')) < 1.0", "NaN values cannot be ordered"),
        ("1 in dyn(1)", "no such overload"),
        ("dyn(1) ? true : false", "no such overload"),
        ("!dyn(1)", "no such overload"),
        ("-dyn('a') == 1", "no such overload"),
        ("dyn('a') < dyn(1)", "no such overload"),
        ("dyn({true: 1})[dyn(1)] == 1", "no such key: 1"),
        ("7 % int('0') == 0", "modulus by zero"),
        ("int('-9223372036854775808') % -1 == 0", "integer overflow"),
        ("1u - 2u == 0u", "unsigned integer overflow"),
        ("[1][5] == 1", "index out of bounds: 5"),
        ("dyn([1])['a'] == 1", "unsupported index type 'string' in list"),
        ("optional.none().value() == 1", "optional.none() dereference"),
    ],
)
def test_operators_take_values_of_all_types_or_fail_as_in_go(expression: str, expected: bool | str) -> None:
    assert outcome(expression) == expected


@pytest.mark.parametrize(
    ("expression", "rule"),
    [
        ("[1, 'a'] == [1]", "expected type 'int' but found 'string'"),
        ("{1: 2, 'a': 3}.size() == 2", "expected type 'int' but found 'string'"),
        ("true ? 1 : 'a'", "found no matching overload for '_?_:_' applied to '(bool, int, string)'"),
        ("[1].map(1, 2) == [1]", "argument is not an identifier"),
        ("has(1)", "invalid argument to has() macro"),
        ("device.foo == 1", "undefined field 'foo'"),
        ("timestamp('x') == timestamp(0)", "invalid timestamp argument"),
        ("duration('x') == duration('1s')", "invalid duration argument"),
        ("[1] + ['a'] == [1]", "found no matching overload for '_+_' applied to '(list(int), list(string))'"),
        ("null == 1", "found no matching overload for '_==_' applied to '(null, int)'"),
        ("[1].all(x, y)", "undeclared reference to 'y' (in container '')"),
    ],
)
def test_types_that_do_not_go_together_do_not_compile(expression: str, rule: str) -> None:
    assert rule in str(outcome(expression))
