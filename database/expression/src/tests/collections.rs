//! Strings, arrays, sets, objects, accumulators.

use bson::{Bson, bson};
use millrace_value::Collation;

use super::{fails, missing, table};

#[test]
fn text() {
    table! {
        {"$concat": ["a", "b", "$c"]}, {"c": "d"} => "abd";
        {"$concat": ["a", null, 1]} => Bson::Null;
        {"$concat": ["a", 1]} => fails(16702, "$concat only supports strings, not int");
        {"$indexOfBytes": ["cafétéria", "é"]} => 3;
        {"$indexOfBytes": ["cafétéria", "t", 3, 6]} => 5;
        {"$indexOfBytes": ["abc", "d"]} => -1;
        {"$indexOfBytes": ["abc", "a", 5]} => -1;
        {"$indexOfBytes": [null, "a"]} => Bson::Null;
        {"$indexOfBytes": [1, "a"]} => fails(40091, "requires a string as the first argument, found: int");
        {"$indexOfBytes": ["a", null]} => fails(40092, "second argument, found: null");
        {"$indexOfBytes": ["a", "a", -1]} => fails(40097, "requires a nonnegative starting index, found: -1");
        {"$indexOfBytes": ["a", "a", 0, "x"]} => fails(40096, "integral ending index, found a value of type: string, with value: \"x\"");
        {"$indexOfCP": ["cafétéria", "t"]} => 4;
        {"$indexOfCP": ["abcb", "b", 2]} => 3;
        {"$indexOfCP": ["abc", "c", 0, 2]} => -1;
        {"$split": ["a-b--c", "-"]} => bson!(["a", "b", "", "c"]);
        {"$split": ["abc", ""]} => fails(40087, "non-empty separator");
        {"$split": [1, "-"]} => fails(40085, "first argument, found: int");
        {"$split": [null, "-"]} => Bson::Null;
        {"$strLenBytes": "é"} => 2;
        {"$strLenCP": "é"} => 1;
        {"$strLenCP": null} => fails(34471, "$strLenCP requires a string argument, found: null");
        {"$strLenBytes": "$a"} => fails(34473, "found: missing");
        {"$strcasecmp": ["ABC", "abd"]} => -1;
        {"$strcasecmp": [null, ""]} => 0;
        {"$toLower": "ABÉ"} => "abÉ";
        {"$toUpper": 12} => "12";
        {"$toUpper": null} => "";
        {"$toLower": [[1]]} => fails(16007, "can't convert from BSON type array to String");
    }
}

#[test]
fn parts_of_text() {
    table! {
        {"$substrBytes": ["hello", 1, 3]} => "ell";
        {"$substr": ["hello", 1, -1]} => "ello";
        {"$substrBytes": ["hello", 9, 1]} => "";
        {"$substrBytes": ["é", 1, 1]} => fails(28656, "UTF-8 continuation byte");
        {"$substrBytes": ["é", 0, 1]} => fails(28657, "in the middle of a UTF-8 character");
        {"$substrBytes": ["a", -1, 1]} => fails(50752, "must be non-negative (got: -1)");
        {"$substrBytes": ["a", "x", 1]} => fails(16034, "starting index must be a numeric type (is BSON type string)");
        {"$substrCP": ["cafétéria", 3, 2]} => "ét";
        {"$substrCP": [123, 1, 1]} => "2";
        {"$substrCP": ["a", 1.5, 1]} => fails(34451, "32-bit integral value: 1.5");
        {"$substrCP": ["a", 0, -1]} => fails(34454, "length must be a nonnegative integer");
        {"$trim": {"input": " \t a b \n"}} => "a b";
        {"$ltrim": {"input": "xxaxx", "chars": "x"}} => "axx";
        {"$rtrim": {"input": "xxaxx", "chars": "yx"}} => "xxa";
        {"$trim": {"input": "a", "chars": null}} => Bson::Null;
        {"$trim": {"input": null}} => Bson::Null;
        {"$trim": {"input": 1}} => fails(50699, "requires its input to be a string, got 1 (of type int) instead");
        {"$trim": {"input": "a", "chars": 1}} => fails(50700, "'chars' to be a string, got 1 (of type int)");
        {"$trim": "a"} => fails(50696, "$trim only supports an object as an argument, found string");
        {"$trim": {"chars": "a"}} => fails(50695, "$trim requires an 'input' field");
        {"$trim": {"input": "a", "x": 1}} => fails(50694, "unknown argument: x");
        {"$replaceOne": {"input": "aXbX", "find": "X", "replacement": "-"}} => "a-bX";
        {"$replaceAll": {"input": "aXbX", "find": "X", "replacement": ""}} => "ab";
        {"$replaceAll": {"input": "aé", "find": "", "replacement": "-"}} => "-a-é-";
        {"$replaceAll": {"input": null, "find": "X", "replacement": ""}} => Bson::Null;
        {"$replaceAll": {"input": null, "find": 1, "replacement": ""}} => fails(51745, "'find' be a string, found: 1");
        {"$replaceAll": {"input": "a", "find": "a"}} => fails(51747, "requires 'replacement' to be specified");
    }
}

#[test]
fn regular_expressions() {
    let regex = |pattern: &str, options: &str| {
        Bson::RegularExpression(bson::Regex {
            pattern: pattern.try_into().unwrap(),
            options: options.try_into().unwrap(),
        })
    };
    table! {
        {"$regexMatch": {"input": "Hello", "regex": "^hel", "options": "i"}} => true;
        {"$regexMatch": {"input": "Hello", "regex": "$r"}}, {"r": (regex("LO$", "i"))} => true;
        {"$regexMatch": {"input": null, "regex": "a"}} => false;
        {"$regexFind": {"input": "caféA1", "regex": "([A-Z])(\\d)?(x)?"}} => bson!({"match": "A1", "idx": 4, "captures": ["A", "1", null]});
        {"$regexFind": {"input": "a", "regex": "b"}} => Bson::Null;
        {"$regexFindAll": {"input": "éa-a", "regex": "a"}} => bson!([{"match": "a", "idx": 1, "captures": []}, {"match": "a", "idx": 3, "captures": []}]);
        {"$regexFindAll": {"input": "é", "regex": ""}} => bson!([{"match": "", "idx": 0, "captures": []}, {"match": "", "idx": 1, "captures": []}]);
        {"$regexFindAll": {"input": "$none", "regex": "a"}} => Bson::Array(vec![]);
        {"$regexFindAll": {"input": "a", "regex": null}} => Bson::Array(vec![]);
        {"$regexMatch": {"input": 1, "regex": "a"}} => fails(51104, "$regexMatch needs 'input' to be of type string");
        {"$regexMatch": {"input": "a", "regex": 1}} => fails(51105, "'regex' to be of type string or regex");
        {"$regexMatch": {"input": "a", "regex": "a", "options": 1}} => fails(51106, "'options' to be of type string");
        {"$regexMatch": {"input": "a", "regex": (regex("a", "i")), "options": "i"}} => fails(51107, "specified in both 'regex' and 'option' fields");
        {"$regexMatch": {"input": "a", "regex": "a", "options": "z"}} => fails(51108, "invalid flag in regex options: z");
        {"$regexMatch": {"input": "a", "regex": "("}} => fails(51111, "Invalid Regex in $regexMatch");
        {"$regexMatch": {"input": "a"}} => fails(31023, "$regexMatch requires 'regex' parameter");
        {"$regexMatch": "a"} => fails(51103, "but found: string");
    }
}

#[test]
fn arrays() {
    table! {
        {"$arrayElemAt": [[1, 2, 3], -1]} => 3;
        {"$arrayElemAt": [[1, 2, 3], 3]} => missing();
        {"$arrayElemAt": [[1, 2, 3], -4]} => missing();
        {"$arrayElemAt": [[1], 0.0]} => 1;
        {"$arrayElemAt": [null, 0]} => Bson::Null;
        {"$arrayElemAt": [1, 0]} => fails(28689, "first argument must be an array, but is int");
        {"$arrayElemAt": [[1], "x"]} => fails(28690, "must be a numeric value, but is string");
        {"$arrayElemAt": [[1], 0.5]} => fails(28691, "representable as a 32-bit integer: 0.5");
        {"$first": [[1, 2]]} => 1;
        {"$last": "$a"}, {"a": [1, 2]} => 2;
        {"$first": [[]]} => missing();
        {"$first": 1} => fails(28689, "$first's argument must be an array, but is int");
        {"$concatArrays": [[1], [2, 3], []]} => bson!([1, 2, 3]);
        {"$concatArrays": [[1], null]} => Bson::Null;
        {"$concatArrays": [[1], 1]} => fails(28664, "$concatArrays only supports arrays, not int");
        {"$in": [2, [1, 2.0]]} => true;
        {"$in": [2, 1]} => fails(40081, "requires an array as a second argument, found: int");
        {"$indexOfArray": [[1, 2, 1], 1, 1]} => 2;
        {"$indexOfArray": [[1, 2], 3]} => -1;
        {"$indexOfArray": [1, 3]} => fails(40090, "found: int");
        {"$isArray": [[1]]} => true;
        {"$isArray": "$a"} => false;
        {"$range": [0, 10, 3]} => bson!([0, 3, 6, 9]);
        {"$range": [3, 0, -1]} => bson!([3, 2, 1]);
        {"$range": [3, 0]} => Bson::Array(vec![]);
        {"$range": [0, 10, 0]} => fails(34449, "non-zero step value");
        {"$range": ["x", 10]} => fails(34443, "requires a numeric starting value, found value of type: string");
        {"$range": [0, 1.5]} => fails(34446, "an ending value that can be represented as a 32-bit integer, found value: 1.5");
        {"$range": [0, 2_000_000_000]} => fails(146, "$range would use too much memory");
        {"$reverseArray": [[1, 2]]} => bson!([2, 1]);
        {"$reverseArray": 1} => fails(34435, "but was of type: int");
        {"$size": [[1, 2]]} => 2;
        {"$size": "$a"} => fails(17124, "must be an array, but was of type: missing");
        {"$slice": [[1, 2, 3], 2]} => bson!([1, 2]);
        {"$slice": [[1, 2, 3], -2]} => bson!([2, 3]);
        {"$slice": [[1, 2, 3], 1, 5]} => bson!([2, 3]);
        {"$slice": [[1, 2, 3], -2, 1]} => bson!([2]);
        {"$slice": [[1, 2, 3], -9, 1]} => bson!([1]);
        {"$slice": [[1], 1, 0]} => fails(28729, "must be positive: 0");
        {"$slice": [1, 1]} => fails(28724, "but is of type: int");
    }
}

#[test]
fn pairs_and_tuples() {
    table! {
        {"$arrayToObject": {"$literal": [["a", 1], ["b", 2], ["a", 3]]}} => bson!({"a": 3, "b": 2});
        {"$arrayToObject": "$x"}, {"x": [{"k": "a", "v": 1}]} => bson!({"a": 1});
        {"$arrayToObject": "$x"}, {"x": []} => bson!({});
        {"$arrayToObject": "$x"} => Bson::Null;
        {"$arrayToObject": 1} => fails(40386, "found: int");
        {"$arrayToObject": [[1]]} => fails(40398, "int");
        {"$arrayToObject": "$x"}, {"x": [["a"]]} => fails(40397, "array of size: 1");
        {"$arrayToObject": "$x"}, {"x": [[1, 2]]} => fails(40395, "Found key type: int");
        {"$arrayToObject": "$x"}, {"x": [["a", 1], {}]} => fails(40396, "Array was detected, now found: object");
        {"$arrayToObject": "$x"}, {"x": [{"k": "a", "v": 1}, []]} => fails(40391, "Object was detected, now found: array");
        {"$arrayToObject": "$x"}, {"x": [{"k": "a"}]} => fails(40392, "number of keys:1");
        {"$arrayToObject": "$x"}, {"x": [{"k": "a", "w": 1}]} => fails(40393, "Missing either or both keys");
        {"$arrayToObject": "$x"}, {"x": [{"k": 1, "v": 1}]} => fails(40394, "Found type: int");
        {"$objectToArray": {"a": 1, "b": 2}} => bson!([{"k": "a", "v": 1}, {"k": "b", "v": 2}]);
        {"$objectToArray": 1} => fails(40390, "found: int");
        {"$zip": {"inputs": [[1, 2], ["a"]]}} => bson!([[1, "a"]]);
        {"$zip": {"inputs": [[1, 2], ["a"]], "useLongestLength": true}} => bson!([[1, "a"], [2, null]]);
        {"$zip": {"inputs": [[1, 2], ["a"]], "useLongestLength": true, "defaults": [0, "z"]}} => bson!([[1, "a"], [2, "z"]]);
        {"$zip": {"inputs": [[1], null]}} => Bson::Null;
        {"$zip": {"inputs": [[1], 2]}} => fails(34468, "non-array expression in input: 2");
        {"$zip": {"inputs": []}} => fails(34465, "at least one input array");
        {"$zip": {"inputs": [[1]], "defaults": [1]}} => fails(34466, "unless useLongestLength is true");
        {"$zip": {"inputs": 1}} => fails(34461, "found int");
    }
}

#[test]
fn some_of_an_array() {
    table! {
        {"$firstN": {"n": 2, "input": [1, 2, 3]}} => bson!([1, 2]);
        {"$lastN": {"n": 2, "input": [1, 2, 3]}} => bson!([2, 3]);
        {"$maxN": {"n": 2, "input": [1, null, 5, 3]}} => bson!([5, 3]);
        {"$minN": {"n": 9, "input": [3, "a", 1]}} => bson!([1, 3, "a"]);
        {"$firstN": {"n": 0, "input": []}} => fails(5_787_908, "'n' must be greater than 0, found 0");
        {"$firstN": {"n": "x", "input": []}} => fails(5_787_902, "must be of integral type");
        {"$firstN": {"n": 1.5, "input": []}} => fails(5_787_903, "must be of integral type");
        {"$firstN": {"n": 1, "input": 1}} => fails(5_788_200, "Input must be an array");
        {"$firstN": {"n": 1}} => fails(5_787_907, "Missing value for 'input'");
        {"$sortArray": {"input": [3, 1, 2], "sortBy": 1}} => bson!([1, 2, 3]);
        {"$sortArray": {"input": [3, "a", 2], "sortBy": -1}} => bson!(["a", 3, 2]);
        {"$sortArray": {"input": "$a", "sortBy": {"x.y": -1, "z": 1}}}, {"a": [{"z": 2}, {"z": 1}, {"x": {"y": 1}}]} => bson!([{"x": {"y": 1}}, {"z": 1}, {"z": 2}]);
        {"$sortArray": {"input": null, "sortBy": 1}} => Bson::Null;
        {"$sortArray": {"input": 1, "sortBy": 1}} => fails(2_942_504, "but was of type: int");
        {"$sortArray": {"input": [], "sortBy": 2}} => fails(2, "Illegal key in $sort specification");
        {"$sortArray": {"input": []}} => fails(2_942_503, "requires 'sortBy' to be specified");
    }
}

#[test]
fn sets() {
    table! {
        {"$setDifference": [[3, 1, 3, 2], [2.0]]} => bson!([3, 1]);
        {"$setDifference": [null, [1]]} => Bson::Null;
        {"$setDifference": [1, [1]]} => fails(17048, "First argument is of type: int");
        {"$setDifference": [[1], 1]} => fails(17049, "Second argument is of type: int");
        {"$setEquals": [[1, 2], [2, 1, 1], [1.0, 2]]} => true;
        {"$setEquals": [[1], [2]]} => false;
        {"$setEquals": [[1]]} => fails(17045, "needs at least two arguments had: 1");
        {"$setEquals": [[1], null]} => fails(17044, "of type: null");
        {"$setIntersection": [[3, 1, 2], [2, 3, 3]]} => bson!([2, 3]);
        {"$setIntersection": []} => Bson::Array(vec![]);
        {"$setIsSubset": [[1, 1], [2, 1]]} => true;
        {"$setIsSubset": [null, [2, 1]]} => fails(17046, "of type: null");
        {"$setUnion": [[2, 1], [3, 1.0]]} => bson!([1, 2, 3]);
        {"$setUnion": [[2, 1], null]} => Bson::Null;
        {"$setUnion": [[2, 1], 1]} => fails(17043, "One argument is of type: int");
        {"$allElementsTrue": [[1, true]]} => true;
        {"$allElementsTrue": [[1, null]]} => false;
        {"$anyElementTrue": [[0, null]]} => false;
        {"$anyElementTrue": [null]} => fails(17041, "must be an array, but is null");
    }
}

#[test]
fn fields() {
    table! {
        {"$getField": "a.b"}, {"a.b": 1} => 1;
        {"$getField": {"field": "a", "input": {"a": 2}}} => 2;
        {"$getField": {"field": {"$literal": "$x"}, "input": "$$ROOT"}}, {"$x": 3} => 3;
        {"$getField": {"field": "a", "input": null}} => Bson::Null;
        {"$getField": {"field": "a", "input": "$none"}} => missing();
        {"$getField": {"field": "a", "input": 1}} => missing();
        {"$getField": 1} => fails(3_041_704, "requires 'field' to evaluate to type String, but got int");
        {"$getField": {"field": "a", "x": 1}} => fails(3_041_701, "unknown argument: x");
        {"$setField": {"field": "a.b", "input": "$$ROOT", "value": 2}}, {"c": 1} => bson!({"c": 1, "a.b": 2});
        {"$setField": {"field": "c", "input": "$$ROOT", "value": "$$REMOVE"}}, {"c": 1, "d": 2} => bson!({"d": 2});
        {"$setField": {"field": "c", "input": null, "value": 1}} => Bson::Null;
        {"$setField": {"field": "c", "input": 1, "value": 1}} => fails(4_161_105, "type Object, but got int");
        {"$setField": {"field": "$c", "input": {}, "value": 1}} => fails(4_161_108, "field path reference");
        {"$setField": {"field": 1, "input": {}, "value": 1}} => fails(4_161_107, "but got int");
        {"$setField": {"field": "a", "input": {}}} => fails(4_161_103, "requires 'value' to be specified");
        {"$unsetField": {"field": "c", "input": "$$ROOT"}}, {"c": 1, "d": 2, "e": 3} => bson!({"d": 2, "e": 3});
        {"$mergeObjects": [{"a": 1, "b": 2}, null, {"a": 3}]} => bson!({"a": 3, "b": 2});
        {"$mergeObjects": "$a"}, {"a": [{"x": 1}, {"y": 2}]} => bson!({"x": 1, "y": 2});
        {"$mergeObjects": [{"a": 1}, 2]} => fails(40400, "input 2 is of type int");
    }
}

#[test]
fn accumulators() {
    table! {
        {"$sum": "$a"}, {"a": [1, 2.5, "x", null]} => 3.5;
        {"$sum": [1, 2, [3]]} => 3;
        {"$sum": []} => 0;
        {"$sum": "$none"} => 0;
        {"$sum": [[0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]]} => 1.0;
        {"$sum": [(i64::MAX), 1]} => 9_223_372_036_854_775_808.0;
        {"$avg": [1, 2]} => 1.5;
        {"$avg": ["x"]} => Bson::Null;
        {"$min": [3, null, 1.5, "a"]} => 1.5;
        {"$max": [[1, "a", 3]]} => "a";
        {"$max": "$none"} => Bson::Null;
        {"$stdDevPop": [2, 4]} => 1.0;
        {"$stdDevSamp": [2]} => Bson::Null;
        {"$stdDevSamp": [[1, 3]]} => std::f64::consts::SQRT_2;
        {"$median": {"input": "$a", "method": "approximate"}}, {"a": [3, 1, "x", 2]} => 2.0;
        {"$percentile": {"input": [1, 2, 3, 4], "p": [0.25, 1], "method": "approximate"}} => bson!([1.0, 4.0]);
        {"$percentile": {"input": 1, "p": [2], "method": "approximate"}} => fails(7_750_303, "'p'");
    }
}

#[test]
fn types_and_sizes() {
    table! {
        {"$type": "$a"} => "missing";
        {"$type": [[1]]} => "array";
        {"$type": {"$literal": 1_i64}} => "long";
        {"$isNumber": 1.5} => true;
        {"$isNumber": "1"} => false;
        {"$bsonSize": {}} => 5;
        {"$bsonSize": 1} => fails(31393, "found: int");
        {"$binarySize": "é"} => 2;
        {"$binarySize": 1} => fails(51276, "found: int");
        {"$tsSecond": (bson::Timestamp { time: 7, increment: 8 })} => 7_i64;
        {"$tsIncrement": (bson::Timestamp { time: 7, increment: 8 })} => 8_i64;
        {"$tsSecond": 1} => fails(5_687_301, "must be a timestamp, but is int");
        {"$toHashedIndexKey": 1} => millrace_value::hashed::hashed_value(&Bson::Int32(1), Collation::SIMPLE).unwrap();
        {"$rand": {}} => 0.5;
        {"$rand": [1]} => fails(3_040_501, "does not currently accept arguments");
        {"$function": {}} => fails(31264, "does not execute JavaScript");
    }
}
