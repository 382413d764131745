use dashu_int::IBig;
use proptest::prelude::*;

use super::*;

fn decimal(text: &str) -> Decimal {
    text.parse().unwrap()
}

fn assert_text(value: Decimal, expected: &str) {
    assert_eq!(value.to_string(), expected);
}

#[test]
fn text_round_trips() {
    for text in [
        "0",
        "-0",
        "0.00",
        "0E+3",
        "-0E-10",
        "1",
        "-1.5",
        "0.001",
        "0.000001",
        "1E-7",
        "1.5E-7",
        "1.50",
        "1E+3",
        "1.23E+5",
        "9.999999999999999999999999999999999E+6144",
        "1E-6176",
        "NaN",
        "Infinity",
        "-Infinity",
        "1234567890123456789012345678901234",
    ] {
        assert_text(decimal(text), text);
        let again = Decimal::from_bson(decimal(text).to_bson());
        assert_text(again, text);
        // The BSON library's own conversion agrees on the bytes and on the text.
        let theirs: Decimal128 = text.parse().unwrap();
        assert_eq!(theirs.bytes(), decimal(text).to_bson().bytes(), "{text}");
        assert_eq!(theirs.to_string(), text);
    }
    assert_text(decimal("+1e2"), "1E+2");
    assert_text(decimal("00012"), "12");
    assert_text(decimal(".5"), "0.5");
    assert_text(decimal("5."), "5");
    assert_text(decimal("-inf"), "-Infinity");
    for text in [
        "", "-", ".", "e5", "1e", "1e+", "1.2.3", "0x1", " 1", "1 ", "--1", "nanx",
    ] {
        assert!(text.parse::<Decimal>().is_err(), "{text}");
    }
}

#[test]
fn text_beyond_34_digits_is_rounded() {
    assert_text(
        decimal("1.2345678901234567890123456789012345"),
        "1.234567890123456789012345678901234",
    );
    assert_text(
        decimal("1.23456789012345678901234567890123450000000000000000000000001"),
        "1.234567890123456789012345678901235",
    );
    assert_text(
        decimal("99999999999999999999999999999999995"),
        "1.000000000000000000000000000000000E+35",
    );
    assert_text(
        decimal("1E+6144"),
        "1.000000000000000000000000000000000E+6144",
    );
    assert_text(decimal("1E+6145"), "Infinity");
    assert_text(decimal("-1e99999999999999999999"), "-Infinity");
    assert_text(decimal("1e-99999999999999999999"), "0E-6176");
    assert_text(decimal("5E-6177"), "0E-6176");
    assert_text(decimal("6E-6177"), "1E-6176");
}

#[test]
fn forms_that_no_one_should_write_are_read() {
    let read = |bits: u128| Decimal::from_bson(Decimal128::from_bytes(bits.to_le_bytes()));
    // A coefficient above 10^34 - 1 in the short and in the long form, with the exponent of 1.
    assert_text(read((6176 << 113) | 10_u128.pow(34)), "0");
    assert_text(read((0b11 << 125) | (6176 << 111) | 5), "0");
    assert_text(read((0b11 << 125) | (0x2FFF << 111)), "0E+6111");
    // Payloads and signs of NaN.
    assert_text(read((1 << 127) | (0b11111 << 122) | 77), "NaN");
    assert_text(read((1 << 127) | (0b11110 << 122) | 77), "-Infinity");
}

#[test]
fn sums_keep_the_lower_exponent() {
    assert_text(decimal("1.0").add(decimal("2.00")), "3.00");
    assert_text(decimal("1").subtract(decimal("1.00")), "0.00");
    assert_text(decimal("-0").add(decimal("-0")), "-0");
    assert_text(decimal("1E+10").add(decimal("0E-3")), "10000000000.000");
    assert_text(
        decimal("1E+6000").add(decimal("1E-6000")),
        "1.000000000000000000000000000000000E+6000",
    );
    assert_text(
        decimal("1E+6000").subtract(decimal("1E-6000")),
        "1.000000000000000000000000000000000E+6000",
    );
    assert_text(decimal("0E+6000").add(decimal("7E-6000")), "7E-6000");
    assert_text(decimal("Infinity").add(decimal("1")), "Infinity");
    assert_text(decimal("Infinity").subtract(decimal("Infinity")), "NaN");
    assert_text(
        decimal("9999999999999999999999999999999999").add(decimal("0.5")),
        "1.000000000000000000000000000000000E+34",
    );
}

#[test]
fn products_quotients_remainders() {
    assert_text(decimal("1.20").multiply(decimal("3")), "3.60");
    assert_text(decimal("1E+6000").multiply(decimal("1E+6000")), "Infinity");
    assert_text(decimal("-1E-6000").multiply(decimal("1E-6000")), "-0E-6176");
    assert_text(decimal("Infinity").multiply(decimal("0")), "NaN");
    assert_text(
        decimal("1").divide(decimal("3")),
        "0.3333333333333333333333333333333333",
    );
    assert_text(
        decimal("2").divide(decimal("3")),
        "0.6666666666666666666666666666666667",
    );
    assert_text(decimal("1").divide(decimal("8")), "0.125");
    assert_text(decimal("10").divide(decimal("2")), "5");
    assert_text(decimal("2.40").divide(decimal("2")), "1.20");
    assert_text(decimal("1").divide(decimal("0")), "Infinity");
    assert_text(decimal("0").divide(decimal("0")), "NaN");
    assert_text(decimal("1").divide(decimal("-Infinity")), "-0E-6176");
    assert_text(decimal("7").remainder(decimal("2.5")), "2.0");
    assert_text(decimal("-7").remainder(decimal("3")), "-1");
    assert_text(decimal("1E+6000").remainder(decimal("7")), "1");
    assert_text(decimal("7").remainder(decimal("1E+6000")), "7");
    assert_text(decimal("7").remainder(decimal("Infinity")), "7");
    assert_text(decimal("7").remainder(decimal("0")), "NaN");
}

#[test]
fn rounding_to_places() {
    let round =
        |text: &str, place, rounding| decimal(text).round_to_place(place, rounding).to_string();
    assert_eq!(round("2.5", 0, Rounding::HalfEven), "2");
    assert_eq!(round("3.5", 0, Rounding::HalfEven), "4");
    assert_eq!(round("-2.5", 0, Rounding::Floor), "-3");
    assert_eq!(round("-2.5", 0, Rounding::Ceiling), "-2");
    assert_eq!(round("2.1", 0, Rounding::Ceiling), "3");
    assert_eq!(round("1E-100", 0, Rounding::Ceiling), "1");
    assert_eq!(round("-1E-100", 0, Rounding::Ceiling), "-0");
    assert_eq!(round("1.5", 3, Rounding::HalfEven), "1.500");
    assert_eq!(round("1234", -2, Rounding::HalfEven), "1.2E+3");
    assert_eq!(round("1E+30", 10, Rounding::HalfEven), "1E+30");
    assert_eq!(round("1.29", 1, Rounding::Zero), "1.2");
    assert_eq!(round("Infinity", 1, Rounding::Zero), "Infinity");
}

#[test]
fn functions_match_known_digits() {
    assert_text(decimal("2").sqrt(), "1.414213562373095048801688724209698");
    assert_text(decimal("4").sqrt(), "2");
    assert_text(decimal("6.25").sqrt(), "2.5");
    assert_text(
        decimal("1E+6111").sqrt(),
        "3.162277660168379331998893544432719E+3055",
    );
    assert_text(decimal("-1").sqrt(), "NaN");
    assert_text(decimal("1").exp(), "2.718281828459045235360287471352662");
    assert_text(decimal("0").exp(), "1");
    assert_text(decimal("15000").exp(), "Infinity");
    assert_text(decimal("-15000").exp(), "0E-6176");
    assert_text(decimal("2").ln(), "0.6931471805599453094172321214581766");
    assert_text(decimal("1.00").ln(), "0");
    assert_text(decimal("0").ln(), "-Infinity");
    assert_text(decimal("1000").log10(), "3");
    assert_text(decimal("0.001").log10(), "-3");
    assert_text(decimal("2").log10(), "0.3010299956639811952137388947244930");
    assert_text(decimal("2").pow(decimal("10")), "1024");
    assert_text(
        decimal("2").pow(decimal("0.5")),
        "1.414213562373095048801688724209698",
    );
    assert_text(decimal("-2").pow(decimal("3")), "-8");
    assert_text(decimal("-2").pow(decimal("0.5")), "NaN");
    assert_text(decimal("10").pow(decimal("7000")), "Infinity");
    assert_text(decimal("10").pow(decimal("-7000")), "0E-6176");
    assert_text(decimal("0").pow(decimal("0")), "1");
    assert_text(decimal("0").pow(decimal("-1")), "Infinity");
    assert_text(decimal("0.5").pow(decimal("Infinity")), "0");
    assert_text(decimal("-Infinity").pow(decimal("3")), "-Infinity");
}

#[test]
fn doubles() {
    assert_text(
        Decimal::from_f64(0.1),
        "0.1000000000000000055511151231257827",
    );
    assert_text(Decimal::from_f64(1.5), "1.5");
    assert_text(Decimal::from_f64(-1024.0), "-1024");
    assert_text(Decimal::from_f64(-0.0), "-0");
    assert_text(
        Decimal::from_f64(5e-324),
        "4.940656458412465441765687928682214E-324",
    );
    assert_text(Decimal::from_f64_rounded(0.1), "0.100000000000000");
    assert_text(Decimal::from_f64_rounded(5.0), "5.00000000000000");
    assert_text(Decimal::from_f64_rounded(-5.5), "-5.50000000000000");
    assert_text(
        Decimal::from_f64_rounded(0.999_999_999_999_999_9),
        "1.00000000000000",
    );
    assert_text(Decimal::from_f64_rounded(0.0), "0");
    assert_text(Decimal::from_f64_rounded(1e300), "1.00000000000000E+300");
    assert!(decimal("1E+400").to_f64().is_infinite());
    assert_eq!(decimal("1E-400").to_f64(), 0.0);
    assert_eq!(decimal("0.1").to_f64(), 0.1);
    assert_eq!(decimal("-1E+400").to_f64_toward_zero(), -f64::MAX);
    assert_eq!(decimal("1E-400").to_f64_toward_zero(), 0.0);
}

#[test]
fn integers() {
    for value in [0, 1, -1, i64::MAX, i64::MIN] {
        assert_eq!(Decimal::from_i64(value).to_i64_exact(), Some(value));
    }
    assert_eq!(decimal("1.50").to_i64_exact(), None);
    assert_eq!(decimal("-7.000").to_i64_exact(), Some(-7));
    assert_eq!(
        decimal("9E+18").to_i64_exact(),
        Some(9_000_000_000_000_000_000)
    );
    assert_eq!(decimal("9223372036854775808").to_i64_exact(), None);
    assert_eq!(decimal("0E+6111").to_i64_exact(), Some(0));
    assert_eq!(decimal("1E-6176").to_i64_exact(), None);
    assert_eq!(decimal("NaN").to_i64_exact(), None);
}

/// Sign, coefficient and exponent over the whole range, with many near each other.
fn any_decimal() -> impl Strategy<Value = Decimal> {
    let coefficient = prop_oneof![
        0_u128..20,
        0_u128..=COEFFICIENT_MAX,
        (COEFFICIENT_MAX - 20)..=COEFFICIENT_MAX,
        (0_u32..34, 0_u128..20)
            .prop_map(|(zeros, digits)| digits * 10_u128.pow(zeros) % (COEFFICIENT_MAX + 1)),
    ];
    let exponent = prop_oneof![-40_i32..40, EXPONENT_MIN..=EXPONENT_MAX];
    (any::<bool>(), coefficient, exponent).prop_map(|(negative, coefficient, exponent)| {
        Decimal::from_parts(negative, coefficient, exponent).unwrap()
    })
}

/// The value times 10^6176 as an integer.
fn scaled(value: Decimal) -> IBig {
    let (negative, coefficient, exponent) = value.to_parts().unwrap();
    let magnitude = UBig::from(coefficient) * ten_pow((exponent - EXPONENT_MIN).unsigned_abs());
    if negative {
        -IBig::from(magnitude)
    } else {
        IBig::from(magnitude)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn bson_and_text_keep_everything(value in any_decimal()) {
        prop_assert_eq!(Decimal::from_bson(value.to_bson()).to_parts(), value.to_parts());
        prop_assert_eq!(decimal(&value.to_string()).to_parts(), value.to_parts());
        let theirs: Decimal128 = value.to_string().parse().unwrap();
        prop_assert_eq!(theirs.bytes(), value.to_bson().bytes());
    }

    #[test]
    fn order_is_that_of_the_exact_values(a in any_decimal(), b in any_decimal()) {
        prop_assert_eq!(a.compare(b), scaled(a).cmp(&scaled(b)));
    }

    #[test]
    fn sums_are_the_nearest(a in any_decimal(), b in any_decimal()) {
        let exact = scaled(a) + scaled(b);
        let sum = a.add(b);
        if sum.is_finite() {
            let error = (scaled(sum) - &exact) * IBig::from(2);
            let (_, _, exponent) = sum.to_parts().unwrap();
            let unit = IBig::from(ten_pow((exponent - EXPONENT_MIN).unsigned_abs()));
            prop_assert!(error >= -unit.clone() && error <= unit);
        }
        prop_assert_eq!(sum.to_parts(), b.add(a).to_parts());
    }

    #[test]
    fn quotient_times_divisor_is_near(a in any_decimal(), b in any_decimal()) {
        prop_assume!(!a.is_zero() && !b.is_zero());
        let quotient = a.divide(b);
        let Some((_, coefficient, _)) = quotient.to_parts() else { return Ok(()); };
        // Subnormal quotients have fewer digits, products near the ends lose theirs.
        prop_assume!(digit_count(coefficient) == 34);
        let product = quotient.multiply(b);
        let Some((_, coefficient, _)) = product.to_parts() else { return Ok(()); };
        prop_assume!(digit_count(coefficient) == 34);
        let error = product.subtract(a).abs();
        prop_assert!(error.compare(a.abs().multiply(decimal("1E-32"))).is_le());
    }

    #[test]
    fn remainder_is_smaller_and_has_the_sign(a in any_decimal(), b in any_decimal()) {
        prop_assume!(!b.is_zero());
        let remainder = a.remainder(b);
        prop_assert!(remainder.abs().compare(b.abs()).is_lt());
        prop_assert!(remainder.is_zero() || remainder.is_negative() == a.is_negative());
        prop_assert_eq!((scaled(a) - scaled(remainder)) % scaled(b), IBig::ZERO);
    }

    #[test]
    fn doubles_compare_like_their_neighbours(bits in any::<u64>(), value in any_decimal()) {
        let double = f64::from_bits(bits);
        prop_assume!(double.is_finite());
        let order = value.compare_f64(double);
        // The double times 2^1074 is an integer; compare with it in integers.
        let (mantissa, exponent) = if double == 0.0 { (0, 0) } else { parts(double.abs()) };
        let magnitude = (IBig::from(mantissa) << usize::try_from(exponent + 1074).unwrap())
            * IBig::from(ten_pow(EXPONENT_MIN.unsigned_abs()));
        let exact = if double < 0.0 { -magnitude } else { magnitude };
        prop_assert_eq!(order, (scaled(value) << 1074).cmp(&exact));
    }

    #[test]
    fn a_double_equals_its_decimal_when_34_digits_hold_it(double in any::<f64>(), whole in -1_000_000_i32..1_000_000) {
        let back = Decimal::from_f64(double).to_f64();
        prop_assert!(back == double || double.is_nan());
        let fraction = f64::from(whole) / 1024.0;
        prop_assert!(Decimal::from_f64(fraction).compare_f64(fraction).is_eq());
    }

    #[test]
    fn toward_zero_is_the_nearest_below(value in any_decimal()) {
        let double = value.to_f64_toward_zero();
        let magnitude = value.abs();
        prop_assert!(magnitude.compare_f64(double.abs()).is_ge());
        let next = f64::from_bits(double.abs().to_bits() + 1);
        prop_assert!(next.is_infinite() || magnitude.compare_f64(next).is_lt());
    }
}

/// A finite positive double as `mantissa * 2^exponent`, the exponent at least -1074.
fn parts(value: f64) -> (u64, i32) {
    let bits = value.to_bits();
    let biased = i32::try_from(bits >> 52).unwrap();
    let fraction = bits & ((1 << 52) - 1);
    if biased == 0 {
        (fraction, -1074)
    } else {
        (fraction | 1 << 52, biased - 1075)
    }
}
