use Number::{Double, Int32, Int64};

use super::*;

fn decimal(text: &str) -> Number {
    Number::Decimal(text.parse().unwrap())
}

/// The number with its type, as a text.
fn show(number: Number) -> String {
    match number {
        Int32(value) => format!("int {value}"),
        Int64(value) => format!("long {value}"),
        Double(value) => format!("double {value:?}"),
        Number::Decimal(value) => format!("decimal {value}"),
    }
}

fn show_option(number: Option<Number>) -> String {
    number.map_or_else(|| "none".to_owned(), show)
}

#[test]
fn comparison_is_exact_across_types() {
    let two_pow_53 = 1_i64 << 53;
    #[expect(clippy::approx_constant, reason = "any fraction")]
    let ascending = [
        Double(f64::NAN),
        Double(f64::NEG_INFINITY),
        decimal("-1E+400"),
        Double(-f64::MAX),
        Int64(i64::MIN),
        decimal("-9223372036854775807.5"),
        Int64(i64::MIN + 1),
        Int32(-1),
        decimal("-1E-400"),
        Int32(0),
        decimal("1E-400"),
        Double(5e-324),
        decimal("0.1"),
        Double(0.1),
        Int32(1),
        Double(3.14),
        Int64(two_pow_53),
        Int64(two_pow_53 + 1),
        Int64(two_pow_53 + 2),
        decimal("9007199254740994.000000000000000001"),
        Int64(i64::MAX),
        Double(TWO_POW_63),
        decimal("9223372036854775808.1"),
        Double(f64::MAX),
        decimal("1E+400"),
        Double(f64::INFINITY),
    ];
    for (i, a) in ascending.into_iter().enumerate() {
        for (j, b) in ascending.into_iter().enumerate() {
            assert_eq!(a.compare(b), i.cmp(&j), "{a} and {b}");
        }
    }
}

#[test]
fn equal_values_of_different_types() {
    for group in [
        vec![
            Int32(0),
            Int64(0),
            Double(0.0),
            Double(-0.0),
            decimal("-0.00"),
            decimal("0E+5"),
        ],
        vec![Int32(7), Int64(7), Double(7.0), decimal("7.00")],
        vec![Double(f64::NAN), decimal("NaN")],
        vec![Double(f64::INFINITY), decimal("Infinity")],
        vec![Double(0.5), decimal("0.50")],
        vec![
            Int64(i64::MIN),
            Double(-TWO_POW_63),
            decimal("-9223372036854775808"),
        ],
    ] {
        for a in &group {
            for b in &group {
                assert_eq!(a.compare(*b), Ordering::Equal, "{a} and {b}");
            }
        }
    }
}

#[test]
fn integers_widen() {
    assert_eq!(show(Int32(i32::MAX).add(Int32(1))), "long 2147483648");
    assert_eq!(show(Int32(1).add(Int64(1))), "long 2");
    assert_eq!(
        show(Int64(i64::MAX).add(Int32(1))),
        "double 9.223372036854776e18"
    );
    assert_eq!(show(Int32(i32::MIN).subtract(Int32(1))), "long -2147483649");
    assert_eq!(
        show(Int64(i64::MIN).subtract(Int32(1))),
        "double -9.223372036854776e18"
    );
    assert_eq!(
        show(Int32(1 << 20).multiply(Int32(1 << 20))),
        "long 1099511627776"
    );
    assert_eq!(
        show(Int64(1 << 40).multiply(Int64(1 << 40))),
        "double 1.2089258196146292e24"
    );
    assert_eq!(show(Int32(1).add(Double(0.5))), "double 1.5");
    assert_eq!(
        show(decimal("1.0").add(Double(0.1))),
        "decimal 1.100000000000000"
    );
    assert_eq!(show(decimal("1.0").multiply(Int32(3))), "decimal 3.0");
    assert_eq!(show_option(Int64(i64::MAX).add_exact(Int32(1))), "none");
    assert_eq!(
        show_option(Int64(i64::MAX).multiply_exact(Int32(2))),
        "none"
    );
    assert_eq!(
        show_option(Int32(i32::MAX).multiply_exact(Int32(2))),
        "long 4294967294"
    );
    assert_eq!(show(Int32(i32::MIN).negate()), "long 2147483648");
    assert_eq!(show(Double(0.0).negate()), "double -0.0");
    assert_eq!(show_option(Int32(i32::MIN).abs()), "long 2147483648");
    assert_eq!(show_option(Int64(i64::MIN).abs()), "none");
}

#[test]
fn division_and_remainder() {
    assert_eq!(show_option(Int32(6).divide(Int32(4))), "double 1.5");
    assert_eq!(show_option(Int32(6).divide(Double(-0.0))), "none");
    assert_eq!(show_option(decimal("1").divide(Int32(4))), "decimal 0.25");
    assert_eq!(show_option(Int32(-7).remainder(Int64(3))), "long -1");
    assert_eq!(show_option(Int64(i64::MIN).remainder(Int32(-1))), "long 0");
    assert_eq!(show_option(Double(7.5).remainder(Int32(2))), "double 1.5");
    assert_eq!(show_option(Int32(7).remainder(Int32(0))), "none");
}

#[test]
fn powers_roots_logarithms() {
    assert_eq!(show_option(Int32(2).pow(Int32(10))), "int 1024");
    assert_eq!(show_option(Int32(2).pow(Int32(40))), "long 1099511627776");
    assert_eq!(show_option(Int32(2).pow(Int64(3))), "long 8");
    assert_eq!(
        show_option(Int32(2).pow(Int32(64))),
        "double 1.8446744073709552e19"
    );
    assert_eq!(show_option(Int32(2).pow(Int32(-1))), "double 0.5");
    assert_eq!(show_option(Int32(-1).pow(Int32(-3))), "int -1");
    assert_eq!(show_option(Int32(0).pow(Int32(0))), "int 1");
    assert_eq!(show_option(Int32(0).pow(Int32(-1))), "none");
    assert_eq!(show_option(Int32(2).pow(decimal("2"))), "decimal 4");
    assert_eq!(show_option(Int32(9).sqrt()), "double 3.0");
    assert_eq!(show_option(Int32(-9).sqrt()), "none");
    assert_eq!(show_option(Int32(0).ln()), "none");
    assert_eq!(show_option(Int32(1).ln()), "double 0.0");
    assert_eq!(show_option(decimal("100").log10()), "decimal 2");
    assert_eq!(show(Int32(0).exp()), "double 1.0");
}

#[test]
fn rounding() {
    assert_eq!(show_option(Double(2.5).round(0)), "double 2.0");
    assert_eq!(show_option(Double(2.675).round(2)), "double 2.67");
    assert_eq!(show_option(Double(1.15).round(1)), "double 1.1");
    assert_eq!(show_option(Double(1234.5).round(-2)), "double 1200.0");
    assert_eq!(show_option(Double(f64::INFINITY).round(2)), "double inf");
    assert_eq!(show_option(Double(-2.79).trunc(1)), "double -2.7");
    assert_eq!(show_option(Int32(1250).round(-2)), "int 1200");
    assert_eq!(show_option(Int32(1350).round(-2)), "int 1400");
    assert_eq!(show_option(Int32(7).round(3)), "int 7");
    assert_eq!(show_option(Int32(i32::MAX).round(-1)), "long 2147483650");
    assert_eq!(show_option(Int64(i64::MAX).round(-1)), "none");
    assert_eq!(
        show_option(Int64(i64::MAX).trunc(-1)),
        "long 9223372036854775800"
    );
    assert_eq!(show_option(Int64(55).trunc(-20)), "long 0");
    assert_eq!(show(Double(-2.5).floor()), "double -3.0");
    assert_eq!(show(Double(-2.5).ceil()), "double -2.0");
    assert_eq!(show(decimal("2.1").ceil()), "decimal 3");
    assert_eq!(show(decimal("-2.1").floor()), "decimal -3");
}

#[test]
fn exact_integers() {
    assert_eq!(Double(3.0).as_i64_exact(), Some(3));
    assert_eq!(Double(3.5).as_i64_exact(), None);
    assert_eq!(Double(TWO_POW_63).as_i64_exact(), None);
    assert_eq!(Double(-TWO_POW_63).as_i64_exact(), Some(i64::MIN));
    assert_eq!(Double(f64::NAN).as_i64_exact(), None);
    assert_eq!(Double(f64::INFINITY).as_i64_exact(), None);
    assert_eq!(decimal("3.00").as_i64_exact(), Some(3));
}
